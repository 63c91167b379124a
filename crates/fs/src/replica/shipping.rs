//! How a server's replica is doing, for whoever asks the server.

use crate::protocol::ServedReplica;
use outboard_cluster::hosts::Host;
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// See this file's first lines.
#[derive(Debug)]
pub(crate) struct ShippingState {
    host: String,
    now: Mutex<ShippingNow>,
}

#[derive(Debug)]
struct ShippingNow {
    phase: ShippingPhase,
    since: Instant,
    /// The last commit that the replica had when it was asked last.
    has: Option<u64>,
    why: String,
}

/// What the replica has of what the server has, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShippingPhase {
    /// What it had once, if anything.
    Away,
    /// It gets everything anew.
    Copying,
    /// It gets what it has missed.
    CatchingUp,
    /// All that is synced.
    InStep,
}

impl ShippingState {
    pub(super) fn new(host: &Host) -> Self {
        let (phase, since, has) = (ShippingPhase::Away, Instant::now(), None);
        let now = ShippingNow { phase, since, has, why: "it was not reached yet".into() };
        Self { host: host.to_string(), now: Mutex::new(now) }
    }

    fn lock(&self) -> MutexGuard<'_, ShippingNow> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: ShippingPhase, why: &str) -> bool {
        let mut now = self.lock();
        let is_news = now.phase != phase || now.why != why;
        if now.phase != phase {
            (now.phase, now.since) = (phase, Instant::now());
        }
        why.clone_into(&mut now.why);
        is_news
    }

    pub(super) fn away(&self, why: &str) {
        if self.enter(ShippingPhase::Away, why) {
            let replica = &self.host;
            tracing::warn!(
                replica,
                why,
                "the replica is away: what is synced from now on is here only, until it is back"
            );
        }
    }

    pub(super) fn copies(&self) {
        self.enter(ShippingPhase::Copying, "");
        tracing::info!(replica = self.host, "the replica gets a whole copy");
    }

    pub(super) fn catches_up(&self) {
        self.enter(ShippingPhase::CatchingUp, "");
    }

    pub(super) fn in_step(&self, has: u64) {
        let is_news = self.enter(ShippingPhase::InStep, "");
        self.lock().has = Some(has);
        if is_news {
            tracing::info!(replica = self.host, commit = has, "the replica is in step");
        }
    }

    /// How it is doing, where so many commits are here.
    pub(crate) fn numbers(&self, last: u64) -> ServedReplica {
        let now = self.lock();
        let lacks = now.has.map_or(last, |has| last.saturating_sub(has));
        ServedReplica::new(now.phase as u64, now.since.elapsed().as_secs(), lacks)
    }

    /// For `outboard status`.
    pub(crate) fn report(&self, last: u64) -> Value {
        let replica = self.numbers(last);
        json!({
            "host": self.host, "state": replica.phase(), "for_s": replica.for_s,
            "lacks_commits": replica.lacks, "why": self.lock().why,
        })
    }
}
