//! Turns that nobody disturbed: where others had the processors, times say nothing about the
//! contestant, and favour whoever waits less for them.

use std::thread;
use std::time::Duration;

use coldpress_common::failure::Result;

use crate::commands::say;

/// The largest share of the machine's processors that others may have in a turn that counts. On two
/// processors this is a quarter of one.
pub(super) const OTHERS_MAX: f64 = 0.12;
/// The number of tries of a turn, after which there is none.
pub(super) const TRIES: u32 = 5;
/// The pause before another try, in which others may come to an end: with it, all tries of a turn
/// take more than a minute.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// Takes turns until there is one in which others had no more than `most` of the processors, up to
/// [`TRIES`], with a pause before each but the first. Adds the shares of others in the turns that
/// do not count to `thrown_away`.
pub(super) fn quiet_turn<T>(
    (most, pause): (f64, Duration),
    thrown_away: &mut Vec<f64>,
    mut turn: impl FnMut() -> Result<T>,
    others: impl Fn(&T) -> f64,
) -> Result<Option<T>> {
    for number in 0..TRIES {
        if number > 0 {
            thread::sleep(pause);
        }
        let found = turn()?;
        let others = others(&found);
        if others <= most {
            return Ok(Some(found));
        }
        say(format!("swap: a turn is thrown away: others had {:.0} %", others * 100.0));
        thrown_away.push(others);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    //! The risk: a figure of a busy machine counts, or a busy machine keeps the benchmark forever.
    use super::*;
    use crate::commands::launch::failed;

    fn play(shares: &[f64]) -> (Option<f64>, Vec<f64>, usize) {
        let (mut left, mut thrown_away) = (shares.iter(), Vec::new());
        let turn = || left.next().copied().ok_or_else(|| failed("no turn".to_owned()));
        let found =
            quiet_turn((OTHERS_MAX, Duration::ZERO), &mut thrown_away, turn, |share| *share)
                .unwrap();
        (found, thrown_away, left.len())
    }

    #[test]
    fn the_first_quiet_turn_counts_and_no_other_is_taken() {
        assert_eq!(play(&[0.12, 0.0]), (Some(0.12), vec![], 1));
        assert_eq!(play(&[0.13, 0.5, 0.01, 0.0]), (Some(0.01), vec![0.13, 0.5], 1));
    }

    #[test]
    fn a_machine_that_stays_busy_gives_no_turn() {
        assert_eq!(play(&[0.2; TRIES as usize + 2]), (None, vec![0.2; TRIES as usize], 2));
    }

    #[test]
    fn a_turn_that_fails_is_a_failure() {
        let fails = || Err::<f64, _>(failed("broken".to_owned()));
        assert!(quiet_turn((1.0, PAUSE), &mut Vec::new(), fails, |share| *share).is_err());
    }
}
