//! A network of variables, costs, tables between two variables, and resources: what is left of a
//! problem when Pull classes are one variable each.
//!
//! Never knows names: a smaller variable and a smaller label come first in the order of names.

/// A pair of labels that may not be chosen. Messages are below [`MESSAGE_MAX`], so that a
/// forbidden entry stays above [`FORBIDDEN_ABOVE`] and any other entry below it.
pub(crate) const FORBIDDEN: i64 = 1 << 62;
/// What separates forbidden entries from others after any messages.
pub(crate) const FORBIDDEN_ABOVE: i64 = 1 << 61;
/// The most that is moved along one end of an edge.
pub(crate) const MESSAGE_MAX: i64 = 1 << 59;
/// More than any placement's value.
pub(crate) const VALUE_MAX: i64 = 1 << 58;

/// Labels as bits.
pub(crate) type Labels = u32;

/// The labels of a set, the smallest first.
pub(crate) fn labels(set: Labels) -> impl Iterator<Item = usize> {
    let mut rest = set;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let label = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(label)
    })
}

/// The set with this one label.
pub(crate) const fn only(label: usize) -> Labels {
    1 << label
}

/// A table of costs between two variables.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    /// The variables of both sides.
    pub(crate) ends: [usize; 2],
    /// For each side, its labels in rows and the other side's in columns.
    pub(crate) tables: [Vec<i64>; 2],
}

impl Edge {
    /// The cost when `side` has the first label and the other side the second.
    fn cost(&self, width: usize, labels: [usize; 2]) -> i64 {
        self.tables[0][labels[0] * width + labels[1]]
    }

    fn is_hard(&self) -> bool {
        self.tables[0].iter().any(|cost| *cost >= FORBIDDEN)
    }
}

/// Something that is used up by variables on some labels.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// What all together may use.
    pub(crate) capacity: u64,
    /// Who uses it.
    pub(crate) uses: Vec<Use>,
}

/// One variable's use of a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    /// The variable.
    pub(crate) variable: usize,
    /// It uses the resource when its label is one of these.
    pub(crate) on: Labels,
    /// How much.
    pub(crate) amount: u64,
}

/// A whole network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    /// Number of labels.
    pub(crate) width: usize,
    /// The labels that each variable may have.
    pub(crate) domains: Vec<Labels>,
    /// The cost of each label of each variable.
    pub(crate) unary: Vec<i64>,
    /// The tables.
    pub(crate) edges: Vec<Edge>,
    /// The edges at each variable, and the variable's side of them.
    pub(crate) incident: Vec<Vec<(usize, usize)>>,
    /// The resources.
    pub(crate) resources: Vec<Resource>,
}

impl Network {
    /// A network without edges and resources.
    pub(crate) fn new(width: usize, domains: Vec<Labels>) -> Self {
        let variables = domains.len();
        Self {
            width,
            unary: vec![0; variables * width],
            incident: vec![Vec::new(); variables],
            domains,
            ..Self::default()
        }
    }

    /// Number of variables.
    pub(crate) fn variables(&self) -> usize {
        self.domains.len()
    }

    /// Adds to the table between two different variables.
    pub(crate) fn add_table(&mut self, a: usize, b: usize, cost: impl Fn(usize, usize) -> i64) {
        let edge = self.edge_between(a, b);
        let (width, edge) = (self.width, &mut self.edges[edge]);
        let side = usize::from(edge.ends[0] != a);
        for x in 0..width {
            for y in 0..width {
                let old = edge.tables[side][x * width + y];
                let new = old.saturating_add(cost(x, y)).min(FORBIDDEN);
                edge.tables[side][x * width + y] = new;
                edge.tables[1 - side][y * width + x] = new;
            }
        }
    }

    fn edge_between(&mut self, a: usize, b: usize) -> usize {
        let known = self.incident[a]
            .iter()
            .find(|(edge, side)| self.edges[*edge].ends[1 - side] == b)
            .map(|(edge, _)| *edge);
        known.unwrap_or_else(|| {
            let edge = self.edges.len();
            let table = vec![0; self.width * self.width];
            self.edges.push(Edge { ends: [a, b], tables: [table.clone(), table] });
            self.incident[a].push((edge, 0));
            self.incident[b].push((edge, 1));
            edge
        })
    }

    /// The value of a choice of labels, or nothing if it is forbidden.
    pub(crate) fn value(&self, choice: &[usize]) -> Option<i64> {
        let in_domains =
            choice.iter().zip(&self.domains).all(|(label, domain)| domain & only(*label) != 0);
        let fits = self.resources.iter().all(|resource| resource.holds(choice));
        if !in_domains || !fits {
            return None;
        }
        let mut value = 0;
        for (variable, label) in choice.iter().enumerate() {
            value += self.unary[variable * self.width + label];
        }
        for edge in &self.edges {
            let cost = edge.cost(self.width, [choice[edge.ends[0]], choice[edge.ends[1]]]);
            if cost >= FORBIDDEN {
                return None;
            }
            value += cost;
        }
        Some(value)
    }

    /// The same constraints without any cost.
    pub(crate) fn without_costs(&self) -> Self {
        let mut hard = Self::new(self.width, self.domains.clone());
        hard.resources.clone_from(&self.resources);
        for edge in self.edges.iter().filter(|edge| edge.is_hard()) {
            let [a, b] = edge.ends;
            let forbidden =
                |x, y| if edge.cost(self.width, [x, y]) >= FORBIDDEN { FORBIDDEN } else { 0 };
            hard.add_table(a, b, forbidden);
        }
        hard
    }

    /// Removes the resources that cannot run out.
    pub(crate) fn drop_plenty(&mut self) {
        let domains = &self.domains;
        self.resources.retain(|resource| {
            let uses = resource.uses.iter().filter(|one| domains[one.variable] & one.on != 0);
            let most = uses.fold(0_u64, |sum, one| sum.saturating_add(one.amount));
            most > resource.capacity
        });
    }

    /// The variables of each part that has nothing to do with any other part.
    pub(crate) fn components(&self) -> Vec<Vec<usize>> {
        let mut sets = Union::new(self.variables());
        for edge in &self.edges {
            sets.join(edge.ends[0], edge.ends[1]);
        }
        for resource in &self.resources {
            for two in resource.uses.windows(2) {
                sets.join(two[0].variable, two[1].variable);
            }
        }
        sets.classes()
    }

    /// The part with these variables only, which is a component.
    pub(crate) fn component(&self, variables: &[usize]) -> Self {
        let place = |variable: usize| variables.binary_search(&variable).ok();
        let domains = variables.iter().map(|variable| self.domains[*variable]).collect();
        let mut part = Self::new(self.width, domains);
        for (new, old) in variables.iter().enumerate() {
            let (new, old) = (new * self.width, old * self.width);
            part.unary[new..new + self.width].copy_from_slice(&self.unary[old..old + self.width]);
        }
        for edge in &self.edges {
            if let (Some(a), Some(b)) = (place(edge.ends[0]), place(edge.ends[1])) {
                part.add_table(a, b, |x, y| edge.cost(self.width, [x, y]));
            }
        }
        for resource in &self.resources {
            let uses: Vec<_> = resource
                .uses
                .iter()
                .filter_map(|one| Some(Use { variable: place(one.variable)?, ..*one }))
                .collect();
            if !uses.is_empty() {
                part.resources.push(Resource { capacity: resource.capacity, uses });
            }
        }
        part
    }
}

impl Resource {
    /// How much a choice of labels uses.
    pub(crate) fn used(&self, choice: &[usize]) -> u64 {
        let uses = self.uses.iter().filter(|one| one.on & only(choice[one.variable]) != 0);
        uses.fold(0_u64, |sum, one| sum.saturating_add(one.amount))
    }

    fn holds(&self, choice: &[usize]) -> bool {
        self.used(choice) <= self.capacity
    }
}

/// Sets that grow together.
#[derive(Debug)]
pub(crate) struct Union {
    parents: Vec<usize>,
}

impl Union {
    /// So many sets of one element.
    pub(crate) fn new(elements: usize) -> Self {
        Self { parents: (0..elements).collect() }
    }

    /// The smallest element of the set.
    pub(crate) fn find(&mut self, element: usize) -> usize {
        let mut root = element;
        while self.parents[root] != root {
            self.parents[root] = self.parents[self.parents[root]];
            root = self.parents[root];
        }
        root
    }

    /// Makes one set of two.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parents[a.max(b)] = a.min(b);
    }

    /// All sets, ordered by their smallest elements.
    pub(crate) fn classes(&mut self) -> Vec<Vec<usize>> {
        let mut classes: Vec<Vec<usize>> = vec![Vec::new(); self.parents.len()];
        for element in 0..self.parents.len() {
            let root = self.find(element);
            classes[root].push(element);
        }
        classes.retain(|class| !class.is_empty());
        classes
    }
}
