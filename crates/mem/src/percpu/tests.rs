//! The risk: a value is lost or doubled when threads change processors, when lists run over, or
//! when they are drained meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::*;

/// Serializes the tests whose threads bind themselves to processors.
static PROCESSORS: Mutex<()> = Mutex::new(());

fn enabled() -> Option<MutexGuard<'static, ()>> {
    // SAFETY: all threads of the tests are the standard library's.
    let enabled = unsafe { rseq::enable() };
    if !enabled {
        eprintln!("skipped: this C library or kernel has no restartable sequences");
    }
    enabled.then(|| PROCESSORS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn lists(capacities: &[u16]) -> CpuLists {
    let lists = CpuLists::new();
    lists.init(capacities).unwrap();
    lists
}

#[test]
fn without_lists_every_call_takes_the_slow_path() {
    let lists = CpuLists::new();
    assert!(!lists.push(0, 1) && lists.pop(0).is_none() && !lists.is_ready());
    assert_eq!((lists.push_many(0, &[1]), lists.pop_many(0, &mut [0])), (0, 0));
    lists.drain_all(&mut |_, _| unreachable!("there is no value"));
    assert_eq!(lists.memory(), Bytes(0));
}

/// The oracle: a stack, on one processor.
#[test]
fn a_list_is_a_stack_with_a_ceiling() {
    let Some(_guard) = enabled() else { return };
    let home = cpu::current();
    std::thread::spawn(move || {
        cpu::run_on(home).unwrap();
        let lists = lists(&[1, 5, 300]);
        assert_eq!(lists.memory(), Bytes(0));
        for (list, capacity) in [(0, 1), (1, 5), (2, 300)] {
            let mut naive = Vec::new();
            for value in 0..400_u32 {
                let pushed = lists.push(list, value * 7);
                assert_eq!(pushed, naive.len() < capacity);
                if pushed {
                    naive.push(value * 7);
                }
                if value % 3 == 0 {
                    assert_eq!(lists.pop(list), naive.pop());
                }
                if value % 50 == 0 {
                    let many: Vec<u32> = (value..value + 40).collect();
                    let room = (capacity - naive.len()).min(many.len());
                    assert_eq!(lists.push_many(list, &many), room);
                    naive.extend(&many[..room]);
                }
                if value % 70 == 0 {
                    let mut taken = [0; 30];
                    let count = lists.pop_many(list, &mut taken);
                    assert_eq!(count, naive.len().min(30));
                    assert_eq!(taken[..count], naive.split_off(naive.len() - count));
                }
                assert_eq!(lists.length(list), naive.len());
            }
            let mut drained = Vec::new();
            lists.drain_all(&mut |other, value| {
                assert_eq!(other, list);
                drained.push(value);
            });
            assert_eq!(drained, naive);
            assert_eq!((lists.pop(list), lists.length(list)), (None, 0));
            assert!(lists.push(list, Blocks::NONE - 1));
            assert_eq!(lists.pop(list), Some(Blocks::NONE - 1));
        }
        // Three lists of 306 values in all fit one page, on the one processor used.
        assert_eq!(lists.memory(), Bytes(PAGE_BYTES));
    })
    .join()
    .unwrap();
}

#[test]
fn a_processor_unknown_at_init_takes_the_slow_path() {
    let Some(_guard) = enabled() else { return };
    if cpu::count().unwrap() < 2 {
        eprintln!("skipped: there is one processor");
        return;
    }
    std::thread::spawn(|| {
        cpu::run_on(0).unwrap();
        let lists = lists(&[10]);
        assert!(lists.push(0, 3));
        cpu::run_on(1).unwrap();
        assert!(!lists.push(0, 4) && lists.pop(0).is_none());
    })
    .join()
    .unwrap();
}

/// Moves values between the lists and `held`, and changes processors all the time.
fn shuffle(lists: &CpuLists, held: &mut Vec<u32>, turns: u32, seed: u32) {
    let processors = cpu::count().unwrap() as u32;
    let mut random = seed;
    for turn in 0..turns {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if turn % 61 == 0 {
            // A processor that is not allowed changes nothing.
            let _ = cpu::run_on((random >> 16) as usize % processors as usize);
        }
        let list = (random >> 20) as usize % 2;
        match random >> 28 {
            0..6 => held.extend(lists.pop(list)),
            6..12 => {
                if let Some(value) = held.pop()
                    && !lists.push(list, value)
                {
                    held.insert(0, value);
                }
            }
            12..14 => {
                let mut taken = [0; 17];
                let count = lists.pop_many(list, &mut taken);
                held.extend(&taken[..count]);
            }
            _ => {
                let count = held.len().min(19);
                let pushed = lists.push_many(list, &held[..count]);
                held.drain(..pushed);
            }
        }
    }
}

#[test]
fn no_value_is_lost_or_doubled_while_threads_move_and_lists_are_drained() {
    const THREADS: u32 = 4;
    const EACH: u32 = 200;
    let Some(_guard) = enabled() else { return };
    for seed in 0..3 {
        let lists = lists(&[37, 150]);
        let done = AtomicBool::new(false);
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let lists = &lists;
                    scope.spawn(move || {
                        let mut held: Vec<_> = (thread * EACH..(thread + 1) * EACH).collect();
                        shuffle(lists, &mut held, 60_000, seed * THREADS + thread);
                        held
                    })
                })
                .collect();
            let drainer = scope.spawn(|| {
                let mut drained = Vec::new();
                // Relaxed: the flag orders nothing else.
                while !done.load(Ordering::Relaxed) {
                    lists.drain_all(&mut |_, value| drained.push(value));
                    let count = drained.len();
                    let pushed = lists.push_many(1, &drained[..count.min(100)]);
                    drained.drain(..pushed);
                }
                drained
            });
            for worker in workers {
                all.extend(worker.join().unwrap());
            }
            done.store(true, Ordering::Relaxed);
            all.extend(drainer.join().unwrap());
        });
        lists.drain_all(&mut |_, value| all.push(value));
        all.sort_unstable();
        assert_eq!(all, (0..THREADS * EACH).collect::<Vec<_>>(), "seed {seed}");
    }
}
