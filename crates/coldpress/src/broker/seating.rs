//! The rules of seats: one user cannot take them all.
//!
//! The launcher's own user, and root, could end the run if they wanted, so they may take any free
//! seat. Any other user (of programs that a launcher of root starts) has a few seats for certain,
//! and more while many are free.

use coldpress_runtime::ledger::SEATS;
use coldpress_sys::net::Peer;

/// The number of seats that only the launcher's user, and root, may take.
const KEPT: usize = SEATS / 8;
/// The number of seats that another user has, however few are free.
const SHARE: usize = SEATS / 8;
/// The number of free seats that a user with more than its share leaves to others: the share of
/// three users, and the kept seats.
const LEFT: usize = 3 * SHARE + KEPT;
/// The most seats of one process. After an exec a process joins again, while services of the
/// programs before may not have noticed that yet. They look every 10 to 25 ms, and a program that
/// fills 8 MiB and execs takes 11 (a chain of 300 in 3.2 s).
const OF_A_PROCESS: usize = 8;

/// Checks that `peer` may have one more seat beside those that `have` one, in a run of the user
/// `ours`. Fails with the text of the refusal.
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
    //! The risk: a user takes what others need, or is kept from what nobody needs.

    use super::*;

    /// Counts the processes of `user` that get a seat after those of `have`, in a run of root.
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
