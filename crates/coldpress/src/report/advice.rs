//! What a report says in sentences: the verdict, and advice.
//!
//! A sentence is there where its figures are, and says no more than they do.

use coldpress_runtime::ledger::BUDGET_FLOOR;
use coldpress_sys::Bytes;

use super::curve::Outlook;
use super::figures::{self, Figures};
use super::words::{budget, count, of, percent, size, time};

/// The part of the time above which a program mostly waits.
const THRASHES: f64 = 0.5;
/// The part of the time up to which waits hardly matter.
const TIGHT: f64 = 0.1;
/// The part of pages brought back by readahead from which a program walks.
const WALKS: f64 = 0.5;
/// The ratio below which pages hardly compress.
const POOR_RATIO: f64 = 1.3;
/// The part of the peak from which other memory is worth a sentence.
const MUCH: f64 = 0.1;
/// The part of the waits from which what they were for is worth a sentence.
const MOSTLY: f64 = 0.3;
/// The part of the waiting that advised budgets end.
const ENDS: f64 = 0.9;
/// What is added to a peak that is to fit: a run of pages for each of some threads.
const ROOM: usize = 1 << 20;

/// Returns what the run came to, in one sentence.
pub(super) fn verdict(figures: &Figures) -> String {
    let (peak, budget) = (size(figures.peak()), size(figures.budget()));
    let wall = time(figures.run.wall_ns);
    if figures.peak() == Bytes(0) {
        return format!("Ended after {wall}, before its memory was looked at.");
    }
    let stall = time(figures.faults.stall_ns);
    let took = match figures.slowdown() {
        _ if figures.stall_share() < 0.01 => {
            format!("It took {wall}, with hardly a wait for pages.")
        }
        Some(times) => {
            format!("It took {wall}, {stall} of them waiting for pages: {times:.1} times as long.")
        }
        None => format!("It took {wall}, and its threads together waited {stall} for pages."),
    };
    if figures.is_budget_changed() {
        return format!("Held {peak} at most, while its budget was changed. {took}");
    }
    if figures.peak() > figures.budget() {
        return format!("Held {peak}, more than its budget of {budget}. {took}");
    }
    if figures.is_fit() {
        return format!("{peak} of {budget} was enough: nothing had to leave in {wall}.");
    }
    format!("Ran in {peak} of {budget}; {} asked for. {took}", size(figures.asked()))
}

/// Returns advice, what matters most first.
pub(super) fn advice(figures: &Figures, outlook: &Outlook) -> Vec<String> {
    let parts = [
        ended(figures),
        fits(figures),
        waits(figures),
        another_budget(figures, outlook),
        figures.run.hint.as_ref().map(|hint| format!("{hint}.")),
        walks(figures),
        disk(figures),
        turns(figures),
        ratio(figures),
        shared(figures),
        unmanaged(figures),
        forks(figures),
    ];
    parts.into_iter().flatten().collect()
}

fn ended(figures: &Figures) -> Option<String> {
    match figures.run.exit_status {
        0 => None,
        status @ 129..=192 => Some(format!(
            "The program was ended by signal {}, or itself returned {status}.",
            status - 128
        )),
        status => Some(format!("The program ended with status {status}.")),
    }
}

/// A program that fits: how much less would do.
fn fits(figures: &Figures) -> Option<String> {
    let (peak, most) = (figures.peak(), figures.budget());
    let is_known = figures.is_fit() && !figures.is_budget_changed();
    if !is_known || peak == Bytes(0) || peak > most {
        return None;
    }
    if is_most(peak, most) {
        return Some("The program fits its budget, and needs about all of it.".to_owned());
    }
    let would_do = Bytes(peak.0.saturating_add(ROOM)).max(BUDGET_FLOOR);
    if is_most(would_do, most) {
        return None;
    }
    let typed = budget(would_do);
    Some(match most.0 / would_do.0 {
        0 | 1 => format!("The program fits its budget: --memory {typed} would do."),
        2 => format!("The program fits its budget. Half the memory would do: --memory {typed}."),
        times => {
            format!("The program fits its budget {times} times over: --memory {typed} would do.")
        }
    })
}

/// Returns whether a size is nearly all of another.
fn is_most(part: Bytes, whole: Bytes) -> bool {
    part.0 / 9 > whole.0 / 10
}

/// A program that waits for want of memory: whether that matters.
fn waits(figures: &Figures) -> Option<String> {
    let is_known = figures.pages.idle == 0 && !figures.is_budget_changed();
    if figures.is_fit() || !is_known || !is_most(figures.peak(), figures.budget()) {
        return None;
    }
    let share = figures.stall_share();
    let shown = percent(share);
    Some(match share {
        _ if share <= TIGHT => format!(
            "The budget is tight and holds: waits for pages, of all threads together, are {shown} \
             of the time. What was away was cold."
        ),
        _ if figures.is_several() => format!(
            "The budget is less than what the program works with: its threads together waited {}.",
            time(figures.faults.stall_ns)
        ),
        _ if share >= THRASHES => {
            format!("The program thrashes: it waited for pages for {shown} of the time.")
        }
        _ => format!(
            "The budget is less than what the program works with: it waited for pages for {shown} \
             of the time."
        ),
    })
}

fn another_budget(figures: &Figures, outlook: &Outlook) -> Option<String> {
    let Outlook::Known(curve) = outlook else { return None };
    let now = curve.forecasts.first()?;
    let ends = curve.ends(ENDS)?;
    Some(format!(
        "A budget of {} ends {} of the waiting: {} {} in place of {}.",
        budget(ends.budget),
        percent(ENDS),
        if figures.is_several() { "at best" } else { "about" },
        time(ends.time_ns as u64),
        time(now.time_ns as u64)
    ))
}

fn walks(figures: &Figures) -> Option<String> {
    let back = figures.pages.loaded.saturating_add(figures.faults.limbo);
    let share = figures.pages.read_ahead as f64 / back.max(1) as f64;
    (share >= WALKS && figures.stall_share() > TIGHT).then(|| {
        format!(
            "This program walks through its memory: {} of the pages that came back were read \
             ahead. A part of a walk in place saves little; all of it has to fit.",
            percent(share.min(1.0))
        )
    })
}

fn disk(figures: &Figures) -> Option<String> {
    let waited = figures.faults.disk_stall_ns? as f64 / figures.faults.stall_ns.max(1) as f64;
    let other_codec = if codec(figures) == "auto" { "" } else { "--codec auto, " };
    (waited >= MOSTLY && figures.stall_share() > TIGHT).then(|| {
        format!(
            "{} of the waiting was for the disk, {}: a larger --max-pool-percent, {other_codec}or \
             a faster --disk may shorten it.",
            percent(waited.min(1.0)),
            of(figures.pages.read_back, "page", "pages")
        )
    })
}

fn turns(figures: &Figures) -> Option<String> {
    let waited = figures.faults.turn_wait_ns as f64 / figures.faults.stall_ns.max(1) as f64;
    (waited >= MOSTLY).then(|| {
        format!(
            "{} of the waiting was for a turn: too many processes want the memory at one time. \
             Fewer side by side, as with make -j, may take no longer.",
            percent(waited.min(1.0))
        )
    })
}

/// Returns the codec at the end of the run, as it is set.
fn codec(figures: &Figures) -> &str {
    figures.run.knobs.get("codec").and_then(|it| it.as_str()).unwrap_or_default()
}

fn ratio(figures: &Figures) -> Option<String> {
    let ratio = figures.run.ratio;
    let tries_zstd = ["zstd", "auto"].iter().any(|it| codec(figures).starts_with(it));
    (figures.pages.stored > 0 && ratio < POOR_RATIO).then(|| {
        let other = if tries_zstd { "" } else { " --codec zstd may make more of them." };
        format!("The pages hardly compress, {ratio:.1} to 1.{other}")
    })
}

fn shared(figures: &Figures) -> Option<String> {
    let shared = figures.run.at_peak.shared_bytes;
    (shared as f64 >= figures.run.peak_bytes.max(1) as f64 * MUCH).then(|| {
        let shared = figures::bytes(shared);
        let left = Bytes(figures.budget().0.saturating_sub(shared.0));
        let rest = if figures.is_budget_changed() {
            String::new()
        } else {
            format!(", so that {} of the budget are left for all else", size(left))
        };
        let shared = size(shared);
        format!("{shared} of the peak is shared memory. It counts and is not managed{rest}.")
    })
}

fn unmanaged(figures: &Figures) -> Option<String> {
    let first = figures.processes.largest_unmanaged.first()?;
    let all = figures.processes.unmanaged;
    Some(format!(
        "{} could not be managed. The largest, {}, held {}: {}.",
        of(all, "process", "processes"),
        first.name,
        size(figures::bytes(first.most_bytes)),
        first.why
    ))
}

fn forks(figures: &Figures) -> Option<String> {
    let forks = figures.run.forks;
    (forks > 0).then(|| {
        let back = match figures.run.fork_pages {
            0 => String::new(),
            pages => format!(" For them, {} were brought back first.", of(pages, "page", "pages")),
        };
        let times = if forks == 1 { "once".to_owned() } else { format!("{} times", count(forks)) };
        format!(
            "Managed processes forked {times}. Pages that parent and child share count once, until \
             one of them writes.{back}"
        )
    })
}

#[cfg(test)]
mod tests {
    //! The risk: a sentence that its figures do not bear out, or none where one would have helped.

    use serde_json::{Value, json};

    use super::super::example;
    use super::*;

    /// Returns the verdict and the advice on the example with some of its keys changed.
    fn said(changes: &[(&str, Value)]) -> (String, String) {
        let mut document = example::document();
        for (path, value) in changes {
            *document.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value.clone();
        }
        let figures = Figures::read(&document.to_string()).unwrap();
        let outlook = Outlook::of(&figures);
        (verdict(&figures), advice(&figures, &outlook).join("\n"))
    }

    #[test]
    fn a_run_that_fits_is_told_what_would_do() {
        let fit = |budget: u64| {
            said(&[
                ("/swap_out_pages", json!(0)),
                ("/limbo_faults", json!(0)),
                ("/stall_ns", json!(0)),
                ("/budget_bytes", json!(budget << 20)),
                ("/timeline/points/budget_bytes", json!(vec![budget << 20; 3])),
                ("/peak_bytes", json!(47 << 20)),
            ])
        };
        let (verdict, advice) = fit(100);
        assert_eq!(verdict, "47 MiB of 100 MiB was enough: nothing had to leave in 62.0 s.");
        assert!(advice.contains("Half the memory would do: --memory 48M."), "{advice}");
        assert!(fit(512).1.contains("10 times over: --memory 48M would do"), "{}", fit(512).1);
        assert!(fit(50).1.contains("needs about all of it"), "{}", fit(50).1);
        assert!(fit(80).1.contains("fits its budget: --memory 48M would do"), "{}", fit(80).1);
        assert!(!advice.contains("thrashes") && !advice.contains("tight"), "{advice}");
        let (verdict, advice) = fit(40);
        assert!(verdict.starts_with("Held 47 MiB, more than its budget of 40 MiB."), "{verdict}");
        assert_eq!(advice, "");
    }

    #[test]
    fn a_run_of_which_little_is_known_is_told_little() {
        let short = |peak: u64| {
            said(&[
                ("/swap_out_pages", json!(0)),
                ("/limbo_faults", json!(0)),
                ("/stall_ns", json!(0)),
                ("/peak_bytes", json!(peak)),
            ])
        };
        let (verdict, advice) = short(0);
        assert_eq!(verdict, "Ended after 62.0 s, before its memory was looked at.");
        assert_eq!(advice, "");
        // No budget below the least one is advised.
        assert!(short(400 << 10).1.contains("--memory 16M would do"), "{}", short(400 << 10).1);
    }

    #[test]
    fn waits_are_judged_by_their_part_of_the_time() {
        let (verdict, advice) = said(&[]);
        assert_eq!(
            verdict,
            "Ran in 149 MiB of 150 MiB; 602 MiB asked for. It took 62.0 s, 41.0 s of them waiting \
             for pages: 3.0 times as long."
        );
        assert!(advice.contains("thrashes: it waited for pages for 66 %"), "{advice}");
        assert!(advice.contains("ends 90 % of the waiting"), "{advice}");
        let stall = |ns: u64| said(&[("/stall_ns", json!(ns))]);
        assert!(stall(3_000_000_000).1.contains("tight and holds"));
        let idle = said(&[("/stall_ns", json!(3_000_000_000_u64)), ("/idle_pages", json!(9))]).1;
        assert!(!idle.contains("tight") && !idle.contains("A budget of"), "{idle}");
        let low =
            said(&[("/stall_ns", json!(3_000_000_000_u64)), ("/peak_bytes", json!(99 << 20))]);
        assert!(!low.1.contains("tight"), "{low:?}");
        assert!(stall(12_000_000_000).1.contains("less than what the program works with"));
        let (verdict, advice) = stall(80_000_000_000);
        assert!(verdict.contains("threads together waited 80.0 s"), "{verdict}");
        assert!(advice.contains("threads together waited 80.0 s"), "{advice}");
        assert!(!advice.contains("thrashes") && !advice.contains("A budget of"), "{advice}");
        let (verdict, advice) = said(&[("/managed_processes", json!(2))]);
        assert!(verdict.ends_with("its threads together waited 41.0 s for pages."), "{verdict}");
        assert!(!advice.contains("thrashes") && advice.contains(": at best "), "{advice}");
        assert!(stall(100_000_000).0.contains("hardly a wait"), "{}", stall(100_000_000).0);
    }

    #[test]
    fn a_peak_is_not_compared_with_a_budget_that_came_later() {
        let budgets = json!([157286400, 157286400 * 2, 157286400]);
        let (verdict, advice) = said(&[
            ("/timeline/points/budget_bytes", budgets),
            ("/at_peak/shared_bytes", json!(60 << 20)),
        ]);
        assert!(verdict.starts_with("Held 149 MiB at most, while its budget was"), "{verdict}");
        assert_eq!(advice, "60 MiB of the peak is shared memory. It counts and is not managed.");
    }

    #[test]
    fn each_cause_has_its_sentence_and_no_other_run_has_it() {
        let none = said(&[]).1;
        for (changes, sentence) in [
            (&[("/at_peak/shared_bytes", json!(60 << 20))][..], "60 MiB of the peak is shared"),
            (&[("/forks", json!(3))], "forked 3 times"),
            (&[("/forks", json!(1)), ("/fork_pages", json!(7))], "7 pages were brought back"),
            (
                &[("/disk_stall_ns", json!(30_000_000_000_u64))],
                "73 % of the waiting was for the disk",
            ),
            (&[("/turn_wait_ns", json!(20_000_000_000_u64))], "49 % of the waiting was for a turn"),
            (&[("/readahead_pages", json!(1_000_000))], "walks through its memory"),
            (&[("/ratio", json!(1.1))], "hardly compress, 1.1 to 1. --codec zstd may"),
            (
                &[("/ratio", json!(1.1)), ("/knobs/codec", json!("zstd:3"))],
                "hardly compress, 1.1 to 1.\n",
            ),
            (&[("/exit_status", json!(1))], "ended with status 1."),
            (&[("/exit_status", json!(193))], "ended with status 193."),
            (&[("/exit_status", json!(137))], "ended by signal 9"),
            (&[("/hint", json!("java mostly waited: -Xmx"))], "java mostly waited: -Xmx."),
            (
                &[
                    ("/unmanaged_processes", json!(2)),
                    (
                        "/unmanaged",
                        json!([{ "process": 7, "name": "su", "why": "it is setuid",
                                 "most_bytes": 5 << 20 }]),
                    ),
                ],
                "2 processes could not be managed. The largest, su, held 5 MiB: it is setuid.",
            ),
        ] {
            let advice = said(changes).1 + "\n";
            assert!(advice.contains(sentence), "{sentence} in {advice}");
            assert!(!none.contains(sentence), "{sentence} in {none}");
        }
    }
}
