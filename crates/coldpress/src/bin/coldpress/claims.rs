//! What is believed of what a process says it holds.
//!
//! Any process of a run may write to the seat of any, so a seat may claim anything. What a process
//! really holds stands in /proc, and is read only when a seat claims clearly more than before. A
//! process may have given much back and not been able to say so for as long as a busy machine keeps
//! it from it: only who goes on claiming what it has not is not believed.

use std::time::{Duration, Instant};

use coldpress_sys::{Bytes, PageCount};

/// Twice what /proc shows, and so much, is believed.
const ROOM: PageCount = Bytes::mib(64).pages_down();
/// How long more may be claimed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is known of one process.
#[derive(Debug)]
pub(crate) struct Claims {
    /// What it may say without being looked at.
    believed: PageCount,
    /// Since when it claims more than it can hold.
    since: Option<Instant>,
}

impl Claims {
    /// Of a process that has just joined.
    pub(crate) fn new() -> Self {
        Self { believed: ROOM, since: None }
    }

    /// It claims so much at `now`, and `shown` reads what /proc shows of it. The most that is to be
    /// believed of it from now on, when that changes: `Some(None)` for no limit.
    pub(crate) fn judge(
        &mut self,
        claimed: PageCount,
        shown: impl FnOnce() -> Option<PageCount>,
        now: Instant,
    ) -> Option<Option<PageCount>> {
        if claimed > self.believed {
            // Nothing is shown of a process that ends, or whose main thread has.
            let shown = shown().filter(|pages| pages.0 > 0)?;
            self.believed = self.believed.max(PageCount(2 * shown.0) + ROOM);
        }
        if claimed <= self.believed {
            return self.since.take().map(|_| None);
        }
        let since = *self.since.get_or_insert(now);
        (now.duration_since(since) >= PATIENCE).then_some(Some(self.believed))
    }

    /// What counts of a claim that was judged, while it is not known whether it will be believed.
    pub(crate) fn counted(&self, claimed: PageCount) -> PageCount {
        if self.since.is_some() { claimed.min(self.believed) } else { claimed }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a claim that others give way to, or a process that is called a liar for being
    //! large, or slow.

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
        // One that ends says nothing any more.
        assert_eq!((judge(most, None, 0), judge(most, Some(0), 5000)), (None, None));
        assert_eq!((judge(most, Some(10), 6000), judge(most, Some(10), 6999)), (None, None));
        assert_eq!(judge(most, Some(10), 7000), Some(Some(pages(84))));
        assert_eq!(judge(most, Some(100), 7100), Some(Some(pages(264))));
        // It says what it holds again.
        assert_eq!(judge(pages(100), Some(100), 7200), Some(None));
        assert_eq!(judge(pages(100), Some(100), 7300), None);
        assert_eq!(claims.counted(most), most);
        claims.judge(most, || Some(pages(200)), now);
        assert_eq!(claims.counted(most), pages(464));
    }
}
