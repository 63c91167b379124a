//! The objects behind C pointers. An object begins with, or contains, the C structure that programs
//! see; a table of live objects distinguishes its pointer from any other value.
//!
//! Programs may use an object from several threads, so an object is only shared; its mutable parts
//! are behind locks. The C structure is in an `UnsafeCell`, because programs read and write it as
//! they like.

use crate::guard::{Outcome, fail};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockWriteGuard};

/// An object that C code holds a pointer to.
///
/// # Safety
/// The C structure lies at `OFFSET` bytes of the object, and the tag right where `tag` says.
pub(crate) unsafe trait Object: Sized + Send + Sync {
    /// The C structure.
    type C;
    /// Tells this kind of object from others.
    const KIND: Kind;
    /// Where in the object the C structure is.
    const OFFSET: usize;
    /// A number in the object that marks its kind; checked where the table is too slow.
    fn tag(&self) -> Kind;
}

/// An object whose functions are called so often that the table is too slow.
pub(crate) trait Trusted: Object {
    /// In which process it was made ([`crate::fork::generation`]).
    fn generation(&self) -> u32;
}

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub(crate) enum Kind {
    Device = 0x4F42_0001,
    Context,
    Pd,
    Mr,
    CompChannel,
    Cq,
    Srq,
    Qp,
    Ah,
    EventChannel,
    CmId,
    CmEvent,
    /// An object that a parent process made before a fork.
    Inherited,
}

static LIVE: LazyLock<RwLock<HashMap<usize, Kind>>> = LazyLock::new(RwLock::default);

/// Hands an object to C.
pub(crate) fn give<T: Object>(object: Box<T>) -> *mut T::C {
    let start = Box::into_raw(object);
    // SAFETY: the trait vouches for the offset.
    let shown = unsafe { start.byte_add(T::OFFSET) }.cast::<T::C>();
    LIVE.write().unwrap_or_else(PoisonError::into_inner).insert(shown.addr(), T::KIND);
    shown
}

/// The object behind a pointer from C, if it is one of this kind; EINVAL otherwise.
pub(crate) fn find<'a, T: Object>(shown: *mut T::C) -> Outcome<&'a T> {
    let kind = LIVE.read().unwrap_or_else(PoisonError::into_inner).get(&shown.addr()).copied();
    if kind != Some(T::KIND) {
        return refuse(kind);
    }
    // SAFETY: the table says that `give` made this pointer. The program must not destroy an object
    // while it uses it in another thread (ibv_create_qp(3) and the like say so).
    Ok(unsafe { &*start_of::<T>(shown).as_ptr() })
}

/// EINVAL for a pointer to no object of the kind wanted; prints why when that is not obvious.
fn refuse<T>(kind: Option<Kind>) -> Outcome<T> {
    static SAID: AtomicBool = AtomicBool::new(false);
    if kind == Some(Kind::Inherited) && !SAID.swap(true, Ordering::Relaxed) {
        say!(
            "a child process uses an RDMA object that its parent made before fork(); it \
             must open the device itself"
        );
    }
    fail(libc::EINVAL)
}

/// True for an object of this kind.
pub(crate) fn is_live(shown: usize, kind: Kind) -> bool {
    LIVE.read().unwrap_or_else(PoisonError::into_inner).get(&shown) == Some(&kind)
}

/// The table of objects, locked over a fork.
#[derive(Debug)]
pub(crate) struct Inheritance(RwLockWriteGuard<'static, HashMap<usize, Kind>>);

/// Locks the table before a fork.
pub(crate) fn hold_for_fork() -> Inheritance {
    Inheritance(LIVE.write().unwrap_or_else(PoisonError::into_inner))
}

impl Inheritance {
    /// In the child: the parent's objects are not the child's.
    pub(crate) fn disown(mut self) {
        for kind in self.0.values_mut().filter(|kind| **kind != Kind::Device) {
            *kind = Kind::Inherited;
        }
    }
}

/// As [`find`] for calls that must be fast and that programs can only make through the object
/// itself (the functions in `ibv_context_ops`).
pub(crate) fn trust<'a, T: Trusted>(shown: *mut T::C) -> Outcome<&'a T> {
    if shown.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the program found this function through the object, so it is one.
    let object: &T = unsafe { &*start_of::<T>(shown).as_ptr() };
    if object.tag() != T::KIND {
        return fail(libc::EINVAL);
    }
    if object.generation() == crate::fork::generation() {
        Ok(object)
    } else {
        refuse(Some(Kind::Inherited))
    }
}

/// Takes an object back from C, which must not use it any more.
pub(crate) fn take<T: Object>(shown: *mut T::C) -> Outcome<Box<T>> {
    let mut live = LIVE.write().unwrap_or_else(PoisonError::into_inner);
    let kind = live.get(&shown.addr()).copied();
    if kind != Some(T::KIND) {
        return refuse(kind);
    }
    live.remove(&shown.addr());
    // SAFETY: `give` made it from a box, and it was in the table until now.
    Ok(unsafe { Box::from_raw(start_of::<T>(shown).as_ptr()) })
}

/// As [`give`], for objects that Outboard's threads may still use while C destroys them.
pub(crate) fn give_shared<T: Object>(object: Arc<T>) -> *mut T::C {
    let start = Arc::into_raw(object).cast_mut();
    // SAFETY: the trait vouches for the offset.
    let shown = unsafe { start.byte_add(T::OFFSET) }.cast::<T::C>();
    LIVE.write().unwrap_or_else(PoisonError::into_inner).insert(shown.addr(), T::KIND);
    shown
}

/// As [`find`], for objects from [`give_shared`].
pub(crate) fn find_shared<T: Object>(shown: *mut T::C) -> Outcome<Arc<T>> {
    let live = LIVE.read().unwrap_or_else(PoisonError::into_inner);
    let kind = live.get(&shown.addr()).copied();
    if kind != Some(T::KIND) {
        return refuse(kind);
    }
    let start = start_of::<T>(shown).as_ptr();
    // SAFETY: `give_shared` made it from an `Arc`, whose count the table's entry still holds.
    Ok(unsafe {
        Arc::increment_strong_count(start);
        Arc::from_raw(start)
    })
}

/// As [`take`], for objects from [`give_shared`].
pub(crate) fn take_shared<T: Object>(shown: *mut T::C) -> Outcome<Arc<T>> {
    let mut live = LIVE.write().unwrap_or_else(PoisonError::into_inner);
    let kind = live.get(&shown.addr()).copied();
    if kind != Some(T::KIND) {
        return refuse(kind);
    }
    live.remove(&shown.addr());
    // SAFETY: as in `find_shared`; the table's count is now the caller's.
    Ok(unsafe { Arc::from_raw(start_of::<T>(shown).as_ptr()) })
}

fn start_of<T: Object>(shown: *mut T::C) -> NonNull<T> {
    // SAFETY: the trait vouches for the offset; neither caller passes null.
    unsafe { NonNull::new_unchecked(shown.byte_sub(T::OFFSET).cast::<T>()) }
}

/// A C structure of all zero bits.
pub(crate) fn zeroed<T>() -> T {
    // SAFETY: the structures are made of integers, raw pointers, optional functions and C library
    // types whose zero is valid.
    unsafe { std::mem::zeroed() }
}

/// A C structure that programs share with this library.
#[repr(transparent)]
pub(crate) struct Shown<T>(pub(crate) std::cell::UnsafeCell<T>);

// SAFETY: fields are read and written through raw pointers only, as the API allows.
unsafe impl<T> Send for Shown<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shown<T> {}

impl<T> Shown<T> {
    /// All zero bits, which every structure of the API allows.
    pub(crate) fn zeroed() -> Self {
        Self(std::cell::UnsafeCell::new(zeroed()))
    }

    /// Where it is.
    pub(crate) fn get(&self) -> *mut T {
        self.0.get()
    }
}

impl<T> std::fmt::Debug for Shown<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::any::type_name::<T>())
    }
}
