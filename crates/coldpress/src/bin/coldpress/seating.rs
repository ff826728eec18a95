//! Who may have a seat: one user cannot take them all.
//!
//! The launcher's own user, and root, could end the run if they wanted, so they have what is free.
//! Any other user (of programs that a launcher of root starts) has a few seats for certain, and
//! more while many are free.

use coldpress_runtime::ledger::SEATS;
use coldpress_sys::net::Peer;

/// Seats that only the launcher's user, and root, may take.
const KEPT: usize = SEATS / 8;
/// Seats of another user that do not depend on how many are free.
const SHARE: usize = SEATS / 8;
/// A user with more than its share leaves so many to others: the share of three, and what is kept.
const LEFT: usize = 3 * SHARE + KEPT;
/// Seats of one process: after an exec it joins again, while services of the programs before may
/// not have seen that yet. They look every 10 to 25 ms, and a program that fills 8 MiB and execs
/// takes 11 (a chain of 300 in 3.2 s).
const OF_A_PROCESS: usize = 8;

/// Whether `peer` may have one more seat when those that `have` one are there, in a run of the user
/// `ours`; else what is said of it.
pub(crate) fn check(
    peer: Peer,
    ours: u32,
    have: impl Iterator<Item = Peer> + Clone,
) -> Result<(), String> {
    let Peer { process, user } = peer;
    let free = SEATS - have.clone().count().min(SEATS);
    if have.clone().filter(|other| other.process == process).count() >= OF_A_PROCESS {
        return Err(format!("process {process} asks for {} seats", OF_A_PROCESS + 1));
    }
    if free == 0 {
        return Err(format!("process {process} is not managed, as {SEATS} others are"));
    }
    let of_user = have.filter(|other| other.user == user).count();
    let is_trusted = user == ours || user == 0;
    if is_trusted || free > LEFT || of_user < SHARE && free > KEPT {
        return Ok(());
    }
    Err(format!(
        "process {process} of user {user} is not managed, as {of_user} of that user's are, of \
         {SEATS} that can be"
    ))
}

#[cfg(test)]
mod tests {
    //! The risk: a user who takes what others need, or is kept from what nobody needs.

    use super::*;

    /// How many of `user` get a seat when those of `have` do, in a run of root.
    fn taken(have: &mut Vec<Peer>, user: u32) -> usize {
        let before = have.len();
        for process in 0..2 * SEATS as u32 {
            let peer = Peer { process: user * 10_000 + process, user };
            if check(peer, 0, have.iter().copied()).is_ok() {
                have.push(peer);
            }
        }
        have.len() - before
    }

    #[test]
    fn no_user_takes_all_but_who_may_end_the_run() {
        assert_eq!(taken(&mut Vec::new(), 0), SEATS);
        let mut have = Vec::new();
        let others: Vec<_> = (1..6).map(|user| taken(&mut have, user)).collect();
        assert_eq!(others, [256, 64, 64, 64, 0]);
        assert_eq!(taken(&mut have, 0), KEPT);
        let peer = Peer { process: 1, user: 0 };
        assert!(check(peer, 0, have.iter().copied()).unwrap_err().contains("512 others"));
    }

    #[test]
    fn a_process_has_eight_seats_at_most() {
        let peer = Peer { process: 7, user: 0 };
        assert!(check(peer, 0, [peer; 7].into_iter()).is_ok());
        let refused = check(peer, 0, [peer; 8].into_iter()).unwrap_err();
        assert!(refused.contains("process 7 asks for 9 seats"), "{refused}");
    }
}
