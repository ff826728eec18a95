//! Contexts: work memory for as many callers as there are at a time, and counts of the codings that
//! pages have.
//!
//! A caller takes any context that is free. The first is made with the store; another is made when
//! a caller had to wait, as long as there is memory for it. So a program of one thread has one. A
//! change to what contexts can do is made with all of them in hand.
//!
//! Invariants (`Zswap::check` walks them):
//! 1. Every context that is made has the codecs of the current kinds, the codec of each kind that
//!    an entry has, and the dictionary of each generation that an entry has. No context has another
//!    codec.
//! 2. An entry is counted, by its coding, from before it can be found until after it cannot. A
//!    caller that counts a new entry has held the context that coded its page all the time. So a
//!    caller that holds all contexts and counts no page of a coding may drop what decodes that
//!    coding.

use core::array;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_codec::{
    CodecChoice, CodecError, Dictionary, DictionaryDecoder, GENERATIONS, Generation, Mark,
};
use coldpress_sys::Bytes;
use coldpress_sys::sync::{Backoff, SleepGuard, SleepLock};

use crate::codecs::{Coding, KINDS, Work, bit_of, kinds_of};
use crate::error::NewError;

/// Contexts there may be: callers that compress or decompress at a time. Further callers wait for
/// one another, some microseconds each.
const CONTEXTS: usize = if cfg!(loom) { 2 } else { 8 };

/// A context that may be made; its user may wait for the disk. It has a cache line of its own,
/// because different processors use different contexts.
#[derive(Debug)]
#[repr(align(64))]
struct Context(SleepLock<Option<Work>>);

/// All contexts.
#[derive(Debug)]
pub(crate) struct Contexts {
    contexts: [Context; CONTEXTS],
    /// Contexts that were ever made: the first ones.
    made: AtomicUsize,
    /// The memory of all contexts, in bytes.
    memory: AtomicUsize,
    /// The kinds of new pages, a bit each.
    current: AtomicUsize,
    /// Entries of each kind, and of each generation of dense pages.
    kinds: [AtomicUsize; KINDS],
    dense: [AtomicUsize; GENERATIONS],
}

/// All contexts in hand.
type All<'c> = [SleepGuard<'c, Option<Work>>; CONTEXTS];

/// A context in use; given up on drop.
pub(crate) struct WorkGuard<'c>(SleepGuard<'c, Option<Work>>);

impl WorkGuard<'_> {
    /// Returns the context.
    pub(crate) fn get(&mut self) -> &mut Work {
        self.0.as_mut().expect("contexts that are not made are not handed out")
    }
}

impl Contexts {
    /// Makes one context with the codecs of `choice`.
    pub(crate) fn new(choice: CodecChoice) -> Result<Self, NewError> {
        let work = Work::new(choice)?;
        let memory = AtomicUsize::new(work.memory().0);
        let current = AtomicUsize::new(kinds_of(choice));
        let mut first = Some(work);
        Ok(Self {
            contexts: array::from_fn(|_| Context(SleepLock::new(first.take()))),
            made: AtomicUsize::new(1),
            memory,
            current,
            kinds: Default::default(),
            dense: Default::default(),
        })
    }

    /// Takes a context that is free, and waits until there is one. The caller must have no context,
    /// and no lock that the user of a context may wait for.
    pub(crate) fn take(&self) -> WorkGuard<'_> {
        if let Some((_, guard)) = self.look() {
            return guard;
        }
        let mut backoff = Backoff::default();
        loop {
            backoff.wait();
            if let Some((number, mut guard)) = self.look() {
                if number == 0 {
                    self.make_another(guard.get());
                }
                return guard;
            }
        }
    }

    /// Takes a context that is free as [`Contexts::take`] does, but does not wait.
    pub(crate) fn try_take(&self) -> Option<WorkGuard<'_>> {
        self.look().map(|(_, guard)| guard)
    }

    fn look(&self) -> Option<(usize, WorkGuard<'_>)> {
        // Relaxed: a hint; the lock of a context shows whether it is made.
        let made = self.made.load(Ordering::Relaxed);
        let mut made = self.contexts.iter().take(made).enumerate();
        made.find_map(|(number, Context(context))| {
            let guard = context.try_lock().filter(|guard| guard.is_some())?;
            Some((number, WorkGuard(guard)))
        })
    }

    /// Makes a context like the first one, which the caller holds, if there is memory.
    fn make_another(&self, first: &Work) {
        debug_assert!(self.contexts[0].0.try_lock().is_none(), "the first context is not in hand");
        for (number, Context(context)) in self.contexts.iter().enumerate().skip(1) {
            let Some(mut place) = context.try_lock().filter(|place| place.is_none()) else {
                continue;
            };
            *place = first.try_clone();
            if let Some(work) = &*place {
                // Relaxed: only the holder of the first context changes these.
                self.memory.fetch_add(work.memory().0, Ordering::Relaxed);
                self.made.fetch_max(number + 1, Ordering::Relaxed);
            }
            return;
        }
    }

    /// Takes all contexts at once.
    fn all(&self) -> All<'_> {
        self.contexts.each_ref().map(|Context(context)| context.lock())
    }

    /// Changes what all contexts can do. On an error of the first context nothing has changed; any
    /// other context that cannot follow is given up.
    fn change(
        &self,
        all: &mut All<'_>,
        mut change: impl FnMut(&mut Work) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        let mut result = Ok(());
        for (number, place) in all.iter_mut().enumerate() {
            if let Some(work) = &mut **place
                && let Err(error) = change(work)
            {
                if number == 0 {
                    result = Err(error);
                    break;
                }
                **place = None;
            }
        }
        self.count_memory(all);
        result
    }

    fn count_memory(&self, all: &All<'_>) {
        assert!(all[0].is_some(), "the first context stays, whatever changes");
        let works = all.iter().filter_map(|place| place.as_ref());
        // Relaxed: only a holder of all contexts, or of the first, changes this.
        self.memory.store(works.map(|work| work.memory().0).sum(), Ordering::Relaxed);
    }

    /// Codes new pages by `choice` from now on, and returns whether that is a change. Then calls
    /// `done`, before any caller codes a page. On an error nothing has changed.
    pub(crate) fn switch(
        &self,
        choice: CodecChoice,
        done: impl FnOnce(),
    ) -> Result<bool, CodecError> {
        let mut is_change = false;
        let mut all = self.all();
        self.change(&mut all, |work| {
            if work.choice() != choice {
                work.switch(choice)?;
                is_change = true;
                // SeqCst, here and in `pages`, pairs with those in `gone`: either the caller that
                // takes the last page away sees that its kind is not current any more, or this call
                // sees that the page has gone.
                self.current.store(kinds_of(choice), Ordering::SeqCst);
                for coding in Coding::FAST {
                    if self.pages(coding) == 0 {
                        work.drop_codec(coding);
                    }
                }
            }
            Ok(())
        })?;
        // SeqCst pairs with the store above: with all contexts in hand no other caller stores.
        let current = || self.current.load(Ordering::SeqCst);
        debug_assert_eq!(current(), kinds_of(choice), "new pages are not of the choice");
        done();
        Ok(is_change)
    }

    /// Makes all contexts decode pages of `generation`, which carry `mark`, by `dictionary`.
    pub(crate) fn adopt(
        &self,
        generation: Generation,
        mark: Mark,
        dictionary: Dictionary,
    ) -> Result<(), CodecError> {
        let mut all = self.all();
        let [first, others @ ..] = &mut all;
        // The first context is always made.
        let Some(first) = &mut **first else { return Ok(()) };
        let mut decoder = match first.dense.take() {
            Some(decoder) => decoder,
            None => DictionaryDecoder::new()?,
        };
        decoder.adopt(generation, mark, dictionary);
        for place in others {
            let Some(work) = &mut **place else { continue };
            work.dense = decoder.try_clone().ok();
            if work.dense.is_none() {
                **place = None;
            }
        }
        first.dense = Some(decoder);
        self.count_memory(&all);
        Ok(())
    }

    /// Makes all contexts drop the dictionary of `generation`: no page is of it, and none will be.
    pub(crate) fn retire(&self, generation: Generation) {
        assert_eq!(self.pages(Coding::Dense(generation)), 0, "pages need their dictionary");
        // The change cannot fail.
        let _ = self.change(&mut self.all(), |work| {
            if let Some(dense) = &mut work.dense {
                dense.retire(generation);
            }
            Ok(())
        });
    }

    /// Makes all contexts drop their decoder of dense pages: there are none, and will be none.
    pub(crate) fn drop_dense(&self) {
        assert_eq!(self.dense_pages(), 0, "dense pages need their decoder");
        // The change cannot fail.
        let _ = self.change(&mut self.all(), |work| {
            work.dense = None;
            Ok(())
        });
    }

    /// Returns the counter for entries of a coding.
    fn count(&self, coding: Coding) -> Option<&AtomicUsize> {
        match coding {
            Coding::Dense(generation) => Some(&self.dense[generation.number()]),
            coding => coding.kind().map(|kind| &self.kinds[kind]),
        }
    }

    /// Returns the number of entries of a coding; raw ones are not counted.
    pub(crate) fn pages(&self, coding: Coding) -> usize {
        // SeqCst pairs with the `fetch_sub` in `gone`, see `switch`.
        self.count(coding).map_or(0, |count| count.load(Ordering::SeqCst))
    }

    /// Returns the number of dense entries.
    pub(crate) fn dense_pages(&self) -> usize {
        Generation::ALL.into_iter().map(|it| self.pages(Coding::Dense(it))).sum()
    }

    /// Counts an entry that will get this coding. The caller has the context that coded the page.
    pub(crate) fn come(&self, coding: Coding) {
        // SeqCst pairs with the store in `switch`, which the caller's context keeps out.
        let is_current = || bit_of(coding) & self.current.load(Ordering::SeqCst) != 0;
        debug_assert!(!coding.is_fast() || is_current(), "no new page may be {coding:?}");
        if let Some(count) = self.count(coding) {
            // Relaxed: the next user of the caller's context sees the count.
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an entry of this coding as gone. The caller has no context.
    pub(crate) fn gone(&self, coding: Coding) {
        let Some(count) = self.count(coding) else { return };
        // SeqCst pairs with the load in `pages`, see `switch`.
        let before = count.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "more pages have gone than came");
        let is_last = before == 1;
        // SeqCst pairs with the store in `switch`.
        let is_current = bit_of(coding) & self.current.load(Ordering::SeqCst) != 0;
        if is_last && coding.is_fast() && !is_current {
            // The change cannot fail.
            let _ = self.change(&mut self.all(), |work| {
                if self.pages(coding) == 0 {
                    work.drop_codec(coding);
                }
                Ok(())
            });
        }
    }

    /// Returns the work memory of all contexts.
    pub(crate) fn memory(&self) -> Bytes {
        // Relaxed: a figure, which publishes nothing else.
        Bytes(self.memory.load(Ordering::Relaxed))
    }

    /// Stops at a broken invariant; `pages` returns the number of entries of a coding. No other
    /// thread uses the store.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn check(&self, pages: impl Fn(Coding) -> usize) {
        let dense = Generation::ALL.map(Coding::Dense);
        for coding in Coding::FAST.into_iter().chain(dense) {
            assert_eq!(self.pages(coding), pages(coding), "{coding:?}");
        }
        let all = self.all();
        let works: alloc::vec::Vec<_> = all.iter().filter_map(|place| place.as_ref()).collect();
        for work in &works {
            work.check(&pages);
            assert!(work.dense.is_some() || self.dense_pages() == 0);
        }
        assert!(!works.is_empty() && all[0].is_some());
        let memory: usize = works.iter().map(|work| work.memory().0).sum();
        assert_eq!(self.memory(), Bytes(memory));
    }
}
