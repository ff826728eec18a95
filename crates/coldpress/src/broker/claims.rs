//! The part of a process's claims about its memory that the launcher believes.
//!
//! Any process of a run may write to any seat, so a seat may claim anything. /proc shows what a
//! process really holds, and is read only when a seat claims clearly more than before. A process
//! may have given much back, but cannot say so while a busy machine keeps it from running. So the
//! launcher disbelieves only a process that goes on claiming memory that it does not hold.

use std::time::{Duration, Instant};

use coldpress_sys::{Bytes, PageCount};

/// The room on top of twice what /proc shows, up to which a claim is believed.
const ROOM: PageCount = Bytes::mib(64).pages_down();
/// The time for which a process may claim more.
const PATIENCE: Duration = Duration::from_secs(1);

/// The launcher's knowledge of the claims of one process.
#[derive(Debug)]
pub(crate) struct Claims {
    /// The most that the process may claim without a look at /proc.
    believed: PageCount,
    /// The time since which the process has claimed more than it can hold.
    since: Option<Instant>,
}

impl Claims {
    /// Returns the claims of a process that has just joined.
    pub(crate) fn new() -> Self {
        Self { believed: ROOM, since: None }
    }

    /// Judges a claim of `claimed` pages at `now`; `shown` reads what /proc shows of the process.
    /// Returns the most to believe of the process from now on, when that changes: `Some(None)` for
    /// no limit.
    pub(crate) fn judge(
        &mut self,
        claimed: PageCount,
        shown: impl FnOnce() -> Option<PageCount>,
        now: Instant,
    ) -> Option<Option<PageCount>> {
        if claimed > self.believed {
            // /proc shows nothing of a process that is ending, or whose main thread has ended.
            let shown = shown().filter(|pages| pages.0 > 0)?;
            self.believed = self.believed.max(PageCount(2 * shown.0) + ROOM);
        }
        if claimed <= self.believed {
            return self.since.take().map(|_| None);
        }
        let since = *self.since.get_or_insert(now);
        (now.duration_since(since) >= PATIENCE).then_some(Some(self.believed))
    }

    /// Returns what counts of a judged claim: while the launcher doubts it, no more than is
    /// believed.
    pub(crate) fn counted(&self, claimed: PageCount) -> PageCount {
        if self.since.is_some() { claimed.min(self.believed) } else { claimed }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: others give way to a false claim, or a process is called a liar for being large or
    //! slow.

    use super::*;

    fn pages(mib: usize) -> PageCount {
        Bytes::mib(mib).pages_down()
    }

    #[test]
    fn who_grows_is_believed_and_seldom_looked_at() {
        let (mut claims, now, mut looks) = (Claims::new(), Instant::now(), 0);
        for mib in 1..4000 {
            let shown = || {
                looks += 1;
                Some(pages(mib))
            };
            assert_eq!(claims.judge(pages(mib), shown, now + PATIENCE * 2), None);
        }
        assert!(looks < 10, "{looks}");
    }

    #[test]
    fn who_goes_on_claiming_what_it_has_not_is_not_believed() {
        let (mut claims, now) = (Claims::new(), Instant::now());
        let most = PageCount(usize::MAX);
        let mut judge = |claimed, mib: Option<usize>, ms| {
            claims.judge(claimed, || mib.map(pages), now + Duration::from_millis(ms))
        };
        // /proc shows nothing any more of a process that is ending.
        assert_eq!((judge(most, None, 0), judge(most, Some(0), 5000)), (None, None));
        assert_eq!((judge(most, Some(10), 6000), judge(most, Some(10), 6999)), (None, None));
        assert_eq!(judge(most, Some(10), 7000), Some(Some(pages(84))));
        assert_eq!(judge(most, Some(100), 7100), Some(Some(pages(264))));
        // The process claims what it holds again.
        assert_eq!(judge(pages(100), Some(100), 7200), Some(None));
        assert_eq!(judge(pages(100), Some(100), 7300), None);
        assert_eq!(claims.counted(most), most);
        claims.judge(most, || Some(pages(200)), now);
        assert_eq!(claims.counted(most), pages(464));
    }
}
