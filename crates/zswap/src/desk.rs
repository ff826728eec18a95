//! The desk: where a store has pages compressed ahead by a helper, which may be in another process.
//!
//! ```text
//! store    post -> POSTED                            collect (DONE) or do without (any other)
//! helper           POSTED -> claim -> TAKEN -> answer -> DONE
//! ```
//!
//! A desk is memory of atomics that both sides share. The store posts where pages are, and never
//! waits: a page that is not done when its time has come, the store compresses itself. So a helper
//! may be slow, be stopped or never have been there.
//!
//! Each page has a ticket, a number that its store uses once and that grows. A job's word is ticket
//! and state, so an answer can only be to the question asked. Only the store knows whether the page
//! at the address was the one meant. It was if the page lay there, unchanged, from before the post
//! until after the answer was collected.
//!
//! There is one helper at a time. Only the helper makes jobs TAKEN and DONE, one after another, so
//! the bytes of a job that is DONE are not written before the job is posted anew.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use coldpress_sys::{Bytes, Page, PageCount};

use crate::helped::{HelperAnswer, HelperCodec, HelperResult};
use crate::knobs::MAX_COMPRESSION_RATIO;
use crate::limits::compressed_max;

/// Jobs that a desk has room for.
pub const JOBS: usize = if cfg!(loom) { 2 } else { 128 };
/// Words for a page's compressed bytes: as many as the default of
/// [`Knobs::max_compression_ratio`](crate::Knobs) allows. Longer results are not handed over.
const WORDS: usize = if cfg!(loom) { 1 } else { OFFERED_MAX.0.div_ceil(size_of::<u64>()) };
const OFFERED_MAX: Bytes = compressed_max(MAX_COMPRESSION_RATIO);
/// Bytes of these words.
const OFFER_BYTES: Bytes = Bytes(WORDS * size_of::<u64>());

// A job has room for the longest result, and less than a word more.
const _: () = assert!(cfg!(loom) || OFFER_BYTES.0 - OFFERED_MAX.0 < size_of::<u64>());
// A length fits the 16 bits that it has in a result's word.
const _: () = assert!(OFFER_BYTES.0 <= u16::MAX as usize);

/// Tickets given up with one that is not done: the helper, which reads some pages at a time, would
/// be late with those after it too. So it gets ahead again. Of 0, 6 and 16, this is the best.
const LEAD: u64 = 16;

const IDLE: u64 = 0;
const POSTED: u64 = 1;
const TAKEN: u64 = 2;
const DONE: u64 = 3;
/// Bits of a state in a word.
const STATE_BITS: u32 = 2;

/// The number of a page that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

impl Ticket {
    fn word(self, state: u64) -> u64 {
        debug_assert!(state >> STATE_BITS == 0 && self.0 << STATE_BITS >> STATE_BITS == self.0);
        self.0 << STATE_BITS | state
    }
}

/// One page to compress, and the answer.
#[repr(C, align(64))]
#[derive(Debug)]
struct Job {
    /// Ticket and state.
    word: AtomicU64,
    address: AtomicU64,
    /// A [`HelperResult`], or 0 for nothing.
    result: AtomicU64,
    bytes: [AtomicU64; WORDS],
}

/// The jobs of one store. Zeroed memory is a desk without jobs.
#[repr(C)]
#[derive(Debug)]
pub struct Desk {
    /// Jobs ever posted, and the number of places they take in turn.
    posted: AtomicU64,
    places: AtomicU64,
    /// One more than the number of the processor that the store is used on; 0 if it may be any.
    processor: AtomicU64,
    jobs: [Job; JOBS],
}

/// Returns the memory of a desk of which `jobs` jobs are in use.
pub const fn memory(jobs: usize) -> Bytes {
    Bytes(size_of::<Desk>() - (JOBS - jobs) * size_of::<Job>())
}

/// The pages that a store has posted at its desk.
#[derive(Debug)]
pub struct Posted {
    /// Tickets and the places of their jobs, oldest first.
    waiting: VecDeque<(Ticket, usize)>,
    /// Jobs ever posted.
    posted: u64,
    /// Most jobs in use at a time.
    limit: usize,
    /// Pages in a row that were given up because the helper was late.
    in_vain: u32,
}

/// The result that a helper has made of a page.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'d> {
    job: &'d Job,
    pub(crate) result: HelperResult,
}

impl Posted {
    /// Returns an empty list for at most `limit` jobs at a time. Takes the memory it will need.
    pub fn new(limit: usize) -> Self {
        let waiting = VecDeque::with_capacity(JOBS);
        Self { waiting, posted: 0, limit: limit.clamp(1, JOBS), in_vain: 0 }
    }

    /// Returns the most jobs in use at a time.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns whether any page was ever posted.
    pub fn is_used(&self) -> bool {
        self.posted > 0
    }

    /// Returns how many pages in a row were posted in vain: the helper was late.
    pub fn in_vain(&self) -> u32 {
        self.in_vain
    }

    /// Counts the pages posted in vain from 0 again.
    pub fn forget_in_vain(&mut self) {
        self.in_vain = 0;
    }

    /// Returns how many more pages can be posted.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.waiting.len())
    }

    /// Posts the page at `address`, for which there must be room. Tickets must grow.
    pub fn post(&mut self, desk: &Desk, ticket: Ticket, address: usize) {
        debug_assert!(self.room() > 0, "there is no place for another page");
        debug_assert!(self.waiting.back().is_none_or(|(last, _)| *last < ticket), "tickets grow");
        let place = (self.posted % self.limit as u64) as usize;
        let job = &desk.jobs[place];
        // Relaxed: the word publishes the address.
        job.address.store(address as u64, Ordering::Relaxed);
        // Release pairs with the Acquire of the word in `claim`.
        job.word.store(ticket.word(POSTED), Ordering::Release);
        self.waiting.push_back((ticket, place));
        self.posted += 1;
        // Relaxed: the count publishes it.
        desk.places.store(self.limit as u64, Ordering::Relaxed);
        // Release pairs with the Acquire of the count in `claim`.
        desk.posted.store(self.posted, Ordering::Release);
    }

    /// Gives up all pages that were posted before `ticket`.
    pub fn give_up_before(&mut self, desk: &Desk, ticket: Ticket) {
        while let Some((_, place)) = self.waiting.pop_front_if(|(first, _)| *first < ticket) {
            // Relaxed: nothing is published. A helper that has just claimed the job works for
            // nothing.
            desk.jobs[place].word.store(IDLE, Ordering::Relaxed);
        }
        debug_assert!(self.waiting.iter().all(|(waiting, _)| *waiting >= ticket), "in order");
    }

    /// Returns what was made of the page of `ticket`, if the page was posted and anything was made.
    /// Every page before it is given up. If it is not done, it is given up with some after it, and
    /// they count as posted in vain; an answer ends the count.
    pub fn collect<'d>(&mut self, desk: &'d Desk, ticket: Ticket) -> Option<Offer<'d>> {
        self.give_up_before(desk, ticket);
        let (_, place) = self.waiting.pop_front_if(|(first, _)| *first == ticket)?;
        debug_assert!(place < self.limit, "{place} is beyond the jobs in use");
        let job = &desk.jobs[place];
        // Acquire pairs with the Release in `answer`: the answer is seen.
        if job.word.load(Ordering::Acquire) != ticket.word(DONE) {
            // Relaxed: as above.
            job.word.store(IDLE, Ordering::Relaxed);
            let waiting = self.waiting.len();
            self.give_up_before(desk, Ticket(ticket.0 + LEAD));
            self.in_vain += 1 + (waiting - self.waiting.len()) as u32;
            return None;
        }
        // Relaxed: seen through the word.
        let result = HelperResult::from_word(job.result.load(Ordering::Relaxed))?;
        if result.length() > OFFER_BYTES {
            return None;
        }
        self.in_vain = 0;
        Some(Offer { job, result })
    }
}

impl Offer<'_> {
    /// Copies the bytes into `buffer`, which must be as long as they are.
    pub(crate) fn copy(&self, buffer: &mut [u8]) {
        assert_eq!(Bytes(buffer.len()), self.result.length(), "the buffer is as long as the bytes");
        let (whole, rest) = buffer.as_chunks_mut::<8>();
        // Relaxed, both: seen through the word when the offer was collected.
        for (to, from) in whole.iter_mut().zip(&self.job.bytes) {
            *to = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        if let Some(from) = self.job.bytes.get(whole.len()) {
            rest.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
        }
    }
}

/// A job that the helper has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    place: usize,
    ticket: Ticket,
    /// The page's address, as the store's user has given it.
    address: usize,
}

impl Desk {
    /// Sets the processor that the store is used on, which its helper should leave to the store.
    pub fn set_processor(&self, processor: Option<usize>) {
        // Relaxed: a hint.
        self.processor.store(processor.map_or(0, |number| number as u64 + 1), Ordering::Relaxed);
    }

    /// Returns the processor that the store is used on, if it is known.
    pub fn processor(&self) -> Option<usize> {
        // Relaxed: as above.
        (self.processor.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Answers the oldest jobs that the store has not given up, at most as many as `pages`, and
    /// returns how many. `read` copies the pages at some addresses into the first of `pages`, and
    /// returns how many it could, from the first on. Jobs whose page it could not copy are answered
    /// with nothing; after its error none of them is answered. For the helper, which keeps a `seen`
    /// for each desk, 0 at first.
    pub fn serve<const MOST: usize, E>(
        &self,
        seen: &mut u64,
        codec: &mut HelperCodec,
        pages: &mut [Page; MOST],
        read: impl FnOnce(&[usize], &mut [Page; MOST]) -> Result<PageCount, E>,
    ) -> Result<usize, E> {
        let claims: Vec<Claim> = core::iter::from_fn(|| self.claim(seen)).take(MOST).collect();
        if claims.is_empty() {
            return Ok(0);
        }
        let addresses: Vec<usize> = claims.iter().map(|claim| claim.address).collect();
        let PageCount(read) = read(&addresses, pages)?;
        for (index, claim) in claims.iter().enumerate() {
            let page = pages.get(index).filter(|_| index < read);
            self.answer(*claim, page.and_then(|page| codec.make(page)));
        }
        Ok(claims.len())
    }

    /// Takes the oldest job that the store has not given up. For the helper.
    pub(crate) fn claim(&self, seen: &mut u64) -> Option<Claim> {
        // Acquire pairs with the Release in `post`: the jobs so far are posted, or given up.
        let posted = self.posted.load(Ordering::Acquire);
        // Relaxed: seen through the count. Whatever value is there, no place lies outside.
        let places = self.places.load(Ordering::Relaxed).clamp(1, JOBS as u64);
        if posted.wrapping_sub(*seen) > places {
            *seen = posted.wrapping_sub(places);
        }
        while *seen != posted {
            let place = (*seen % places) as usize;
            *seen = seen.wrapping_add(1);
            let job = &self.jobs[place];
            // Relaxed: the claim below succeeds only if the word has not changed.
            let word = job.word.load(Ordering::Relaxed);
            let ticket = Ticket(word >> STATE_BITS);
            if word != ticket.word(POSTED) {
                continue;
            }
            let taken = ticket.word(TAKEN);
            // Acquire pairs with the Release of the word in `post`: the address is seen.
            if (job.word.compare_exchange(word, taken, Ordering::Acquire, Ordering::Relaxed))
                .is_ok()
            {
                // Relaxed: seen through the word.
                let address = job.address.load(Ordering::Relaxed) as usize;
                return Some(Claim { place, ticket, address });
            }
        }
        None
    }

    /// Returns whether jobs were posted that a helper with this `seen` has not looked at.
    pub fn has_more(&self, seen: u64) -> bool {
        // Relaxed: a hint; a helper that must not miss a job orders this and the post by other
        // means.
        self.posted.load(Ordering::Relaxed) != seen
    }

    /// Passes over all jobs so far. For the helper.
    pub fn pass_over(&self, seen: &mut u64) {
        // Relaxed: nothing is read through it.
        *seen = self.posted.load(Ordering::Relaxed);
    }

    /// Makes a desk without jobs.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        let atomic = || AtomicU64::new(0);
        let job = || Job {
            word: atomic(),
            address: atomic(),
            result: atomic(),
            bytes: core::array::from_fn(|_| atomic()),
        };
        let jobs = core::array::from_fn(|_| job());
        Self { posted: atomic(), places: atomic(), processor: atomic(), jobs }
    }

    /// Answers the job of `claim`: with what was made of its page and the compressed bytes, or with
    /// the news that nothing was. For the helper, job after job.
    pub(crate) fn answer(&self, claim: Claim, answer: Option<HelperAnswer<'_>>) {
        debug_assert!(
            answer.is_none_or(|answer| Bytes(answer.bytes.len()) == answer.result.length()),
            "the bytes are as many as the result says"
        );
        let job = &self.jobs[claim.place];
        let answer = answer.filter(|answer| Bytes(answer.bytes.len()) <= OFFER_BYTES);
        let (word, bytes) =
            answer.map_or((0, &[][..]), |answer| (answer.result.to_word(), answer.bytes));
        let (whole, rest) = bytes.as_chunks();
        // Relaxed, all: the word publishes them, or nothing does if the job is another by now.
        for (to, from) in job.bytes.iter().zip(whole) {
            to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        if let Some(to) = job.bytes.get(whole.len()) {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            // Relaxed: as above.
            to.store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
        // Relaxed: as above.
        job.result.store(word, Ordering::Relaxed);
        let (taken, done) = (claim.ticket.word(TAKEN), claim.ticket.word(DONE));
        // Release pairs with the Acquire in `collect`. On a failure the store has given the job up.
        let _ = job.word.compare_exchange(taken, done, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    //! The risk: an answer about one page taken for another's, or a helper that waits although
    //! there are jobs.

    use super::*;
    use crate::codecs::{Coding, Pressed};
    use coldpress_codec::CodecChoice;
    use coldpress_sys::PAGE_BYTES;
    use proptest::prelude::*;

    /// Makes the page at an "address".
    fn page(address: usize) -> Page {
        core::array::from_fn(|at| (address + at / 128) as u8)
    }

    fn maker() -> HelperCodec {
        HelperCodec::new(CodecChoice::default(), 80).unwrap()
    }

    /// Copies what is offered.
    fn bytes(offer: &Offer<'_>) -> Vec<u8> {
        let mut buffer = std::vec![0; offer.result.length().0];
        offer.copy(&mut buffer);
        buffer
    }

    #[test]
    fn what_is_too_long_or_was_not_made_is_not_offered() {
        let (desk, mut posted, mut seen) = (Desk::empty(), Posted::new(2), 0);
        posted.post(&desk, Ticket(1), 7);
        posted.post(&desk, Ticket(2), 8);
        assert_eq!(posted.room(), 0);
        let long = [1; OFFER_BYTES.0 + 1];
        let length = Bytes(long.len());
        let result = HelperResult::Compressed(Pressed { length, coding: Coding::Wk, checksum: 0 });
        let answer = HelperAnswer { result, bytes: &long };
        desk.answer(desk.claim(&mut seen).unwrap(), Some(answer));
        desk.answer(desk.claim(&mut seen).unwrap(), None);
        assert!(desk.claim(&mut seen).is_none());
        assert!(posted.collect(&desk, Ticket(1)).is_none());
        assert!(posted.collect(&desk, Ticket(2)).is_none());
        assert_eq!((posted.room(), posted.in_vain()), (2, 0));
        posted.post(&desk, Ticket(3), 9);
        assert!(desk.has_more(seen));
        desk.pass_over(&mut seen);
        assert!(!desk.has_more(seen) && desk.claim(&mut seen).is_none());
    }

    #[test]
    fn only_a_page_that_was_read_is_offered() {
        let (desk, mut posted, mut seen) = (Desk::empty(), Posted::new(4), 0);
        let (mut codec, mut pages) = (maker(), [[0; PAGE_BYTES]; 2]);
        (1..=4).for_each(|ticket| posted.post(&desk, Ticket(ticket), 10 * ticket as usize));
        let served = desk.serve(&mut seen, &mut codec, &mut pages, |addresses, pages| {
            assert_eq!(addresses, [10, 20]);
            pages[0] = page(10);
            Ok::<_, ()>(PageCount(1))
        });
        assert_eq!(served, Ok(2));
        let offer = posted.collect(&desk, Ticket(1)).unwrap();
        assert_eq!(bytes(&offer), codec.make(&page(10)).unwrap().bytes);
        assert!(posted.collect(&desk, Ticket(2)).is_none());
        assert_eq!(posted.in_vain(), 0);
        let served = desk.serve(&mut seen, &mut codec, &mut pages, |_, _| Err("refused"));
        assert_eq!(served, Err("refused"));
        assert!(posted.collect(&desk, Ticket(3)).is_none());
        assert_eq!((posted.in_vain(), desk.has_more(seen)), (2, false));
        let none = |_: &[usize], _: &mut [Page; 2]| -> Result<PageCount, ()> { panic!() };
        assert_eq!(desk.serve(&mut seen, &mut codec, &mut pages, none), Ok(0));
    }

    #[test]
    fn nothing_that_others_write_leads_outside() {
        for garbage in [u64::MAX, 1 << 63, JOBS as u64 + 1] {
            let (desk, mut posted, mut seen) = (Desk::empty(), Posted::new(JOBS), 0);
            posted.post(&desk, Ticket(1), 7);
            for word in [&desk.posted, &desk.places, &desk.jobs[1].word] {
                word.store(garbage, Ordering::Relaxed);
                let mut claims = core::iter::from_fn(|| desk.claim(&mut seen));
                assert!(claims.by_ref().take(JOBS + 1).count() <= JOBS);
            }
            desk.jobs[0].word.store(Ticket(1).word(DONE), Ordering::Relaxed);
            // The second says WK, and is longer than a job has bytes.
            for result in [garbage, OFFER_BYTES.0 as u64 + 1, 0xffff] {
                desk.jobs[0].result.store(result, Ordering::Relaxed);
                let mut posted = Posted { waiting: posted.waiting.clone(), ..Posted::new(JOBS) };
                let offer = posted.collect(&desk, Ticket(1));
                assert!(offer.is_none_or(|offer| offer.result.length() <= OFFER_BYTES));
                assert_eq!(posted.in_vain(), 0);
            }
            desk.jobs[0].result.store(OFFER_BYTES.0 as u64, Ordering::Relaxed);
            assert!(posted.collect(&desk, Ticket(1)).is_some());
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Post,
        /// Collects, after passing over this many tickets.
        Collect(u64),
        Claim,
        Answer,
        /// A new helper, which has seen nothing.
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Post),
            2 => (0_u64..4).prop_map(Step::Collect),
            3 => Just(Step::Claim),
            3 => Just(Step::Answer),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn an_offer_is_of_its_page_and_a_helper_who_keeps_up_misses_none(
            limit in 1_usize..5,
            steps in proptest::collection::vec(step(), 1..300),
        ) {
            let (desk, mut maker) = (Desk::empty(), maker());
            let (mut posted, mut seen, mut taken) = (Posted::new(limit), 0, None);
            // Tickets that are posted, each with whether it is answered.
            let mut asked = VecDeque::<(u64, bool)>::new();
            let mut next = 0;
            let address = |ticket: u64| ticket as usize * 31;
            for step in steps {
                match step {
                    Step::Post if posted.room() > 0 => {
                        next += 1;
                        posted.post(&desk, Ticket(next), address(next));
                        asked.push_back((next, false));
                    }
                    Step::Post => prop_assert_eq!(asked.len(), limit),
                    Step::Collect(passed) => {
                        let ticket = asked.front().map_or(next, |(first, _)| *first) + passed;
                        while asked.pop_front_if(|(first, _)| *first < ticket).is_some() {}
                        let answered = asked.pop_front_if(|(first, _)| *first == ticket);
                        let before = posted.in_vain();
                        let offer = posted.collect(&desk, Ticket(ticket));
                        let mut in_vain = match answered {
                            Some((_, true)) => 0,
                            Some((_, false)) => before + 1,
                            None => before,
                        };
                        while answered.is_some_and(|(_, done)| !done)
                            && asked.pop_front_if(|(it, _)| *it < ticket + LEAD).is_some()
                        {
                            in_vain += 1;
                        }
                        prop_assert_eq!(posted.in_vain(), in_vain);
                        prop_assert_eq!(offer.is_some(), answered.is_some_and(|(_, done)| done));
                        if let Some(offer) = offer {
                            let page = page(address(ticket));
                            let answer = maker.make(&page).unwrap();
                            prop_assert_eq!(offer.result, answer.result);
                            prop_assert_eq!(bytes(&offer), answer.bytes);
                        }
                    }
                    Step::Claim if taken.is_none() => {
                        taken = desk.claim(&mut seen);
                        let waits = asked.iter().filter(|(_, done)| !done).count();
                        prop_assert_eq!(taken.is_none(), waits == 0);
                    }
                    Step::Answer => {
                        let Some(claim) = taken.take() else { continue };
                        let page = page(claim.address);
                        desk.answer(claim, maker.make(&page));
                        let is_it = |asked: &&mut (u64, bool)| asked.0 == claim.ticket.0;
                        let of_claim = asked.iter_mut().find(is_it);
                        if let Some((_, done)) = of_claim {
                            *done = true;
                        }
                    }
                    Step::Restart if taken.is_none() => seen = 0,
                    Step::Claim | Step::Restart => {}
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_model {
    //! The risk: an offer seen before its bytes, or torn by a claim that was given up.

    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Makes the model's answer for the page at an address: a valid word, and the bytes.
    fn result(address: usize) -> (HelperResult, [u8; 8]) {
        let word = 8 | (address as u64) << 32;
        (HelperResult::from_word(word).unwrap(), (address as u64).to_ne_bytes())
    }

    #[test]
    fn loom_an_offer_is_of_the_page_that_was_asked_for() {
        loom::model(|| {
            let desk = Arc::new(Desk::empty());
            let of_helper = Arc::clone(&desk);
            let helper = thread::spawn(move || {
                let mut seen = 0;
                for _ in 0..3 {
                    if let Some(claim) = of_helper.claim(&mut seen) {
                        let (result, bytes) = result(claim.address);
                        of_helper.answer(claim, Some(HelperAnswer { result, bytes: &bytes }));
                    }
                }
            });
            let mut posted = Posted::new(1);
            // One place, so that each page is posted over the former.
            for ticket in 1..=2 {
                posted.post(&desk, Ticket(ticket), 70 + ticket as usize);
                thread::yield_now();
                if let Some(offer) = posted.collect(&desk, Ticket(ticket)) {
                    let (expected, expected_bytes) = result(70 + ticket as usize);
                    let mut bytes = [0; 8];
                    offer.copy(&mut bytes);
                    assert_eq!((offer.result, bytes), (expected, expected_bytes));
                }
            }
            helper.join().unwrap();
        });
    }
}
