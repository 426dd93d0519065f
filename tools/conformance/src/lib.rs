//! The conformance suite of the fabric contract.
//!
//! To test a transport, implement [`Fixture`] for it, and name that in a test file of the
//! transport's crate: the macro makes one test of each probe.
//!
//! ```
//! //! The contract, kept by this transport.
//! use petasos_conformance::{Fixture, RealTime, conformance};
//! use petasos_fabric::{Address, Endpoint, Time};
//! use petasos_self::Local;
//!
//! #[derive(Default)]
//! struct Mine(RealTime);
//!
//! impl Fixture for Mine {
//!     fn fresh(&self) -> Address {
//!         Address::parse(&format!("self://{}", self.0.name())).unwrap()
//!     }
//!     fn open(&self, at: &Address) -> Box<dyn Endpoint> {
//!         Box::new(Local::open(at).unwrap())
//!     }
//!     fn now(&self) -> Time {
//!         self.0.now()
//!     }
//! }
//!
//! conformance!(Mine::default());
//! conformance!(faulty, Mine::default());
//! # fn main() {}
//! ```
//!
//! The first line makes a module `plain` of tests, the second a module `faulty` of the same
//! probes with [`Faults::GENTLE`] injected under them (without the few that count what a transport
//! buffers, or how often it wakes). A transport on virtual time moves its clock in
//! [`Fixture::pass`]. One that needs more than dropping an endpoint to end it as a crash would
//! says so in [`Fixture::kill`]. Nothing is left out by hand: a probe asks the capabilities of the
//! endpoints, and whether there is a descriptor to sleep on; the probes with threads, in
//! [`driving`] and [`concurrent`], need one.
//!
//! A probe gets a [`World`]: endpoints driven in turn from one thread, a [`ledger`] that fails on
//! a second or a missing completion, and checks on every event (nothing of a peer before
//! `PeerUp` or after `PeerLost`, each of these once, `Writable` only after `Full`). After the
//! probe all that is left is cancelled, and must end. What fails, fails with a report of the last
//! events and of what is open.
//!
//! `conformance!(out_of_process, Mine::default())` makes a module `out_of_process` of the same
//! probes, whose endpoints are in turn in the test's process and in processes of their own, on this
//! host or on another: see [`out_of_process`].
//!
//! `conformance!(attended, Mine::default())` makes a module `attended` of the same probes, with
//! endpoints that a thread drives, too. `conformance!(passive, Mine::default())` makes a module
//! `passive` of targets that compute and make no call: see [`passive`].
//!
//! `conformance!(stopped, Mine::default())` makes a module `stopped` of tests in which the peer is
//! a process that is stopped while memory is closed that it reaches: see [`stopped`].
//!
//! [`Faulty`] by itself is a tool for tests of protocols: wrap the endpoint, give a seed.
//!
//! What the suite cannot do with endpoints of one process is in [`processes`] and
//! [`unauthenticated`], for tests that start the processes and name what a transport has beyond the
//! contract; [`Network`] is where such tests open endpoints.

#![deny(unsafe_code)]

mod actions;
pub mod faulty;
pub mod fixture;
mod foreign;
pub mod forks;
pub mod ledger;
pub mod mutations;
pub mod network;
pub mod out_of_process;
pub mod processes;
pub mod random;
mod random_fences;
pub mod reached;
pub mod senders;
pub mod stopped;
pub mod unauthenticated;
pub mod world;

pub mod address_space;
pub mod atomics;
pub mod capabilities;
pub mod completions;
pub mod concurrent;
pub mod delayed;
pub mod device;
pub mod drain;
pub mod driving;
pub mod faults;
pub mod fences;
pub mod flush;
pub mod keys;
pub mod leases;
pub mod lifecycle;
pub mod long;
pub mod memory;
pub mod messages;
pub mod mix;
pub mod part_keys;
pub mod passive;
pub mod peeks;
pub mod pieces;
pub mod quotas;
pub mod raw;
pub mod remote_access;
pub mod room;
pub mod tagged;

pub use faulty::{Faults, Faulty};
pub use fixture::{FaultyFixture, Fixture, RealTime};
pub use network::{Network, free_port};
pub use out_of_process::OutOfProcess;
pub use passive::AttendedFixture;
pub use random::Random;
pub use world::World;

/// Runs a probe in a world of its own.
pub fn run(fixture: &dyn Fixture, probe: impl FnOnce(&mut World)) {
    if fixture.missing().is_some() {
        return;
    }
    let mut world = World::new(fixture);
    probe(&mut world);
    world.end();
}

/// Makes a test of each probe, for the fixture that the expression gives: see the crate's page.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        /// The transport as it is.
        mod plain {
            use super::*;
            fn fixture() -> impl $crate::Fixture {
                $fixture
            }
            $crate::probes!(everywhere);
            $crate::probes!(connected);
            $crate::probes!(plain_only);
        }
    };
    (faulty, $fixture:expr) => {
        /// The transport with faults injected.
        mod faulty {
            use super::*;
            fn fixture() -> impl $crate::Fixture {
                $crate::FaultyFixture::new($fixture, $crate::Faults::GENTLE, 1)
            }
            $crate::probes!(everywhere);
            $crate::probes!(connected);
        }
    };
    (out_of_process, $fixture:expr) => {
        /// The transport between processes, or hosts.
        mod out_of_process {
            use super::*;
            const SERVE: &str = concat!(module_path!(), "::serve");
            fn fixture() -> impl $crate::Fixture {
                $crate::OutOfProcess::new($fixture, SERVE)
            }
            #[test]
            #[ignore = "the other side of the tests beside it, which start it"]
            fn serve() {
                $crate::out_of_process::serve(&$fixture);
            }
            $crate::probes!(everywhere);
            $crate::probes!(connected);
            $crate::probes!(plain_only);
        }
    };
    (stopped, $fixture:expr) => {
        /// Memory that is closed under peers that are stopped.
        mod stopped {
            use super::*;
            use $crate::stopped::{
                What, Where, closings, fences, flushes, operations, revocations,
            };
            const SERVE: &str = concat!(module_path!(), "::serve");
            #[test]
            #[ignore = "the other side of the tests beside it, which start it"]
            fn serve() {
                $crate::stopped::serve(&$fixture);
            }
            #[test]
            fn flushed() {
                flushes(&$fixture, SERVE, Where::Heap);
            }
            #[test]
            fn flushed_to_memory_of_the_transport() {
                flushes(&$fixture, SERVE, Where::Alloc);
            }
            #[test]
            fn fenced() {
                fences(&$fixture, SERVE, Where::Heap);
            }
            #[test]
            fn fenced_behind_puts_to_memory_of_the_transport() {
                fences(&$fixture, SERVE, Where::Alloc);
            }
            #[test]
            fn puts() {
                closings(&$fixture, SERVE, What::Put, Where::Heap);
            }
            #[test]
            fn gets() {
                closings(&$fixture, SERVE, What::Get, Where::Heap);
            }
            #[test]
            fn puts_to_memory_of_the_transport() {
                closings(&$fixture, SERVE, What::Put, Where::Alloc);
            }
            #[test]
            fn gets_of_memory_of_the_transport() {
                closings(&$fixture, SERVE, What::Get, Where::Alloc);
            }
            #[test]
            fn puts_to_memory_of_the_program() {
                closings(&$fixture, SERVE, What::Put, Where::Raw);
            }
            #[test]
            fn gets_of_memory_of_the_program() {
                closings(&$fixture, SERVE, What::Get, Where::Raw);
            }
            #[test]
            fn puts_to_pieces() {
                closings(&$fixture, SERVE, What::Put, Where::Pieces);
            }
            #[test]
            fn memory_of_operations() {
                operations(&$fixture, SERVE);
            }
            #[test]
            fn puts_by_a_key_to_a_part() {
                revocations(&$fixture, SERVE, What::Put);
            }
            #[test]
            fn gets_by_a_key_to_a_part() {
                revocations(&$fixture, SERVE, What::Get);
            }
        }
    };
    (attended, $fixture:expr) => {
        /// The transport with a thread that drives its endpoints while no other thread does.
        mod attended {
            use super::*;
            fn fixture() -> impl $crate::Fixture {
                $crate::AttendedFixture::new($fixture)
            }
            $crate::probes!(everywhere);
            $crate::probes!(connected);
            $crate::probes!(plain_only);
            $crate::probes!(passive);
        }
    };
    (passive, $fixture:expr) => {
        /// Targets that compute, and make no call.
        mod passive {
            use super::*;
            fn fixture() -> impl $crate::Fixture {
                $crate::AttendedFixture::new($fixture)
            }
            $crate::probes!(passive);
            #[test]
            fn memory_that_was_accessed_before() {
                $crate::run(&$fixture, $crate::passive::memory_that_was_accessed_before);
            }
            #[test]
            fn among_processes() {
                let name = concat!(module_path!(), "::among_processes");
                let (_, name) = name.split_once("::").expect("the crate comes first");
                $crate::passive::among_processes(&fixture(), name);
            }
        }
    };
    (parting, $fixture:expr) => {
        /// The transport when it closes connections on which nothing happens.
        mod parting {
            use super::*;
            fn fixture() -> impl $crate::Fixture {
                $fixture
            }
            $crate::probes!(everywhere);
        }
    };
}

/// The lists of probes.
#[doc(hidden)]
#[macro_export]
macro_rules! probes {
    (everywhere) => {
        $crate::tests! {
            messages: hello, parts_become_one, empty_messages, longest_messages,
                levels_and_memory, order_of_mixed_messages, many_peers, to_oneself,
                unknown_peers, both_connect_at_once;
            tagged: by_tag, ignore_mask, by_source, order, truncation, lengths,
                cancelled_receive, unexpected_while_messages_flow;
            peeks: peeked_messages_stay, claimed_messages, claims_are_discarded, claims_of_a_lost_peer,
                claims_withdrawn_by_their_sender;
            leases: held_leases_stop_nothing_else, a_slow_consumer_slows_no_other;
            quotas: a_greedy_peer_and_a_polite_one, raised_while_messages_wait, less_than_it_has,
                expected_messages, of_whom;
            drain: posted_receives, operations, regions, a_stopped_peer, a_killed_peer;
            long: whole_bodies, parts_of_bodies, discarded, any_order, headers, only_once,
                cancelled_by_its_sender, cancelled_by_its_receiver;
            remote_access: put_and_get, scattered, beyond_the_end, lengths_must_agree,
                put_with_event, passive_target, own_memory, large, ordered, refused_puts, unsupported;
            flush: completions_come_first, puts_are_visible, every_access, refusals_are_told_once, of_nothing,
                of_own_memory, many_at_once, of_one_among_others, loss, cancelled;
            fences: data_before_flags, every_kind_of_flag, gets_before_puts, messages_before_flags,
                of_a_passive_target, what_follows_waits, held, cancelled, of_one_among_others, killed,
                forgotten_and_closed, closed_meanwhile, to_oneself_and_to_a_late_peer, unsupported,
                random;
            keys: rights, released_while_used, garbage_keys, closed_regions, closing_waits_for_access, third_party;
            part_keys: rights, ranges, one_of_two_revoked, revoked_for_good,
                end_with_their_region, puts_with_event, by_number, numbers_of_an_earlier_life;
            atomics: every_operation, what_is_refused, several_at_once;
            memory: allocated, mapped, unknown_regions, read_only, exclusive_again;
            device: every_operation, refused, left_when_a_peer_is_lost;
            address_space: addresses, rights, unmapped_meanwhile;
            pieces: puts_and_gets, spans_and_events, atomics, parts, messages;
            raw: every_operation, freed_when_cancelled, freed_when_lost,
                freed_when_the_sender_is_lost, owners_return_to_their_queue;
            capabilities: of_each_peer;
            completions: each_kind, failures, among_other_events, behind_an_event,
                others_are_not_left;
            lifecycle: late_peer, peer_that_never_comes, peer_that_is_not_running, one_handle, wrong_scheme, killed_peer,
                last_messages, restart_at_the_same_address, forgotten_peer,
                forgotten_and_silent, many_lives;
            driving: hand_over, notifier, messages_wake, handoff, late_peer_wakes;
            concurrent: closing_under_fire, revoking_under_fire, sums_from_threads,
                sums_beside_the_processor, messages_from_threads;
            faults: cancel_each, loss_under_each, loss_of_a_sender, others_are_served;
            mix: random_operations;
        }
    };
    (passive) => {
        $crate::tests! {
            passive: everything_goes_on, unread_messages_stop_nothing_else;
        }
    };
    (connected) => {
        /// What needs a connection to be noticed.
        mod connected {
            use super::fixture;
            $crate::tests! { driving: loss_wakes; }
        }
    };
    (plain_only) => {
        mod alone {
            use super::fixture;
            $crate::tests! {
                messages: back_pressure, leases_hoarded;
                driving: sleeps_soundly;
                faults: random_losses;
                fences: many_deferred, behind_messages_that_wait;
                part_keys: no_more_than_the_limit;
                room: a_full_peer_stops_no_other, bodies_that_are_not_taken, accesses_to_a_full_peer,
                    a_million_at_once;
            }
        }
    };
}

/// One test for each name.
#[doc(hidden)]
#[macro_export]
macro_rules! tests {
    ($($group:ident: $($probe:ident),+;)+) => {
        $(
            mod $group {
                $(
                    #[test]
                    fn $probe() {
                        $crate::run(&super::fixture(), $crate::$group::$probe);
                    }
                )+
            }
        )+
    };
}
