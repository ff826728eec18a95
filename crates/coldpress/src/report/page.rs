//! The page of a report: one file of HTML that fetches nothing and runs nothing.
//!
//! Programs name themselves and may be hostile: every text goes through the escaping of the
//! template, and characters that a terminal or a browser obeys are shown as escapes. The policy in
//! its head forbids all but the style inside.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::advice;
use super::chapters::{self, Moments};
use super::curve::Outlook;
use super::figures::{self, Event, Figures};
use super::picture::Table;
use super::words::{count, of, percent, size, time};
use crate::text::printable;

const STYLE: &str = include_str!("style.css");
/// The most rows of a table of events: those left out are counted.
const EVENTS_MAX: usize = 200;

/// Returns the page.
pub(super) fn page(figures: &Figures) -> String {
    let outlook = Outlook::of(figures);
    let verdict = advice::verdict(figures);
    let advice = advice::advice(figures, &outlook);
    let program = printable(&figures.run.program);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (program) ": report of coldpress" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (program) }
                    p.verdict { (verdict) }
                    (tiles(figures))
                    ul.advice { @for sentence in &advice { li { (printable(sentence)) } } }
                    (memory(figures))
                    (another_budget(figures, &outlook))
                    (pages(figures))
                    (processes(figures))
                    (settings(figures))
                }
                footer { "Made by coldpress from the statistics of the run, as --stats has them." }
            }
        }
    };
    page.into_string() + "\n"
}

fn tiles(figures: &Figures) -> Markup {
    let pages = &figures.pages;
    let ratio = match pages.stored {
        0 => "nothing stored".to_owned(),
        _ => format!("{:.2} to 1", figures.run.ratio),
    };
    let processes = &figures.processes;
    let managed = format!("{} of {}", count(processes.managed), count(processes.joined));
    let waiting = if figures.is_several() {
        ("waiting, all threads", time(figures.faults.stall_ns))
    } else {
        ("waiting for pages", percent(figures.stall_share()))
    };
    let budget = if figures.is_budget_changed() { "budget at the end" } else { "budget" };
    html! {
        dl.tiles {
            @for (name, value) in [
                (budget, size(figures.budget())),
                ("held at the peak", size(figures.peak())),
                ("asked for", size(figures.asked())),
                ("time", time(figures.run.wall_ns)),
                waiting,
                ("faults", count(figures.faults.all)),
                ("compressed", size(figures.stored())),
                ("ratio", ratio),
                ("written to disk", size(figures::pages(pages.written_back))),
                ("managed processes", managed),
            ] {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// Memory, faults and waits over time.
fn memory(figures: &Figures) -> Markup {
    let moments = Moments::of(figures);
    html! {
        h2 { "Memory over time" }
        @if moments.is_point() {
            p.lead { "The run ended before its memory was looked at twice." }
        } @else {
            (chapters::held(figures, &moments).markup())
            (chapters::asked(figures, &moments).markup())
        }
        h2 { "Time" }
        @if figures.is_several() && figures.faults.stall_ns == 0 {
            p.lead { "No thread waited for pages." }
        } @else {
            (chapters::parts(figures).markup())
        }
        @if figures.is_several() {
            p.note { "Waits of all threads are added up, those at one time too." }
        }
        @if !moments.is_point() && figures.faults.all > 0 {
            (chapters::stall(figures, &moments).markup())
            (chapters::faults(figures, &moments).markup())
        }
    }
}

/// What another budget would have cost.
fn another_budget(figures: &Figures, outlook: &Outlook) -> Markup {
    let smaller = "What a smaller budget would have cost is not known: no page was sampled. \
                   `coldpress advise` finds it out by runs.";
    html! {
        h2 { "Another budget" }
        @match outlook {
            Outlook::Fits => p.lead {
                "Nothing had to leave, so a larger budget changes nothing, and one no smaller than \
                 the peak costs nothing."
            },
            Outlook::Unknown(why) => p.lead {
                "What another budget would have cost is not known: " (why) "."
            },
            Outlook::Known(curve) => {
                p.lead {
                    "The time of this run, less the waits that more room would have ended. Room is \
                     shared as in this run. " (smaller)
                    @if figures.is_several() {
                        " Threads may have waited at one time, so these times are the best case."
                    }
                }
                @if let Some(picture) = chapters::curve(curve) { (picture.markup()) }
            }
        }
    }
}

/// Pages: their sizes and ages, and how long faults took.
fn pages(figures: &Figures) -> Markup {
    let pictures = chapters::histograms(figures);
    let pages = &figures.pages;
    html! {
        @if !pictures.is_empty() {
            h2 { "Pages" }
            p.lead {
                (of(pages.stored, "page was", "pages were")) " stored, " (count(pages.same_filled))
                " of them one repeated word. " (count(pages.loaded)) " came back, "
                (count(pages.read_back)) " of them from disk."
            }
            @for picture in &pictures { (picture.markup()) }
        }
    }
}

/// The processes of the run.
fn processes(figures: &Figures) -> Markup {
    let timeline = &figures.run.timeline;
    let end_of = |process: Option<u64>, after: u64| {
        let mut left = timeline.events.iter().filter(|event| event.kind == "left");
        left.find(|event| event.process == process && event.time_ns >= after)
    };
    let row = |event: &Event| {
        let end = end_of(event.process, event.time_ns);
        vec![
            event.process.map(|process| process.to_string()).unwrap_or_default(),
            printable(event.name.as_deref().unwrap_or_default()),
            time(event.time_ns),
            end.map_or_else(|| "stayed".to_owned(), |end| time(end.time_ns)),
        ]
    };
    let joined = timeline.events.iter().filter(|event| event.kind == "joined");
    let rows: Vec<_> = joined.take(EVENTS_MAX).map(row).collect();
    let all = figures.processes.joined;
    let note = if (rows.len() as u64) < all {
        format!("{} of {} processes are shown.", rows.len(), count(all))
    } else {
        String::new()
    };
    let heads = ["process", "name", "joined at", "left at"].map(str::to_owned).to_vec();
    let unmanaged = figures.processes.largest_unmanaged.iter().map(|one| {
        let most = size(figures::bytes(one.most_bytes));
        vec![one.process.to_string(), printable(&one.name), most, printable(&one.why)]
    });
    let unmanaged = Table {
        heads: ["process", "name", "held at most", "why"].map(str::to_owned).to_vec(),
        rows: unmanaged.collect(),
        note: String::new(),
    };
    html! {
        h2 { "Processes" }
        p.lead {
            (of(all, "process", "processes")) " joined the run, " (count(figures.processes.managed))
            " had memory that was managed, and " (count(figures.processes.unmanaged))
            " could not be managed."
        }
        @if !rows.is_empty() { (Table { heads, rows, note }.open()) }
        @if !unmanaged.rows.is_empty() {
            h3 { "Not managed" }
            (unmanaged.open())
        }
    }
}

/// What was set, and what happened.
fn settings(figures: &Figures) -> Markup {
    let timeline = &figures.run.timeline;
    let knobs = figures.run.knobs.iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![printable(name), printable(&value)]
    });
    let knobs = Table {
        heads: ["knob", "at the end"].map(str::to_owned).to_vec(),
        rows: knobs.collect(),
        note: String::new(),
    };
    let told = |event: &Event| {
        let text = match (event.kind.as_str(), event.bytes, &event.text) {
            ("budget", Some(bytes), _) => format!("budget {}", size(figures::bytes(bytes))),
            ("knobs" | "warning", _, Some(text)) => format!("{}: {}", event.kind, printable(text)),
            _ => return None,
        };
        Some((time(event.time_ns), text))
    };
    let mut events: Vec<_> = timeline.events.iter().filter_map(told).collect();
    let more = events.len().saturating_sub(EVENTS_MAX);
    events.truncate(EVENTS_MAX);
    html! {
        h2 { "Settings and events" }
        @if events.is_empty() {
            p.lead { "Nothing was changed, and nobody was warned." }
        } @else {
            ul { @for (at, text) in &events { li { (at) ": " (text) } } }
        }
        @if more > 0 { p.note { (of(more as u64, "event", "events")) " more; --stats has them." } }
        @if timeline.events_dropped > 0 {
            p.note {
                "The timeline has no room for " (of(timeline.events_dropped, "event", "events"))
                " of processes or settings."
            }
        }
        (knobs.markup("All knobs"))
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a program writes into the page of its report; or the page shows colours that
    //! cannot be told apart, or asks the network for something.

    use serde_json::json;

    use super::super::example;
    use super::*;

    #[test]
    fn a_program_cannot_write_into_the_page() {
        let name = "</script><b>\u{202e}\"'&";
        let mut document = example::document();
        document["program"] = json!(name);
        document["hint"] = json!(name);
        document["knobs"][name] = json!(name);
        document["unmanaged"] =
            json!([{ "process": 1, "name": name, "why": name, "most_bytes": 1 }]);
        document["timeline"]["events"] = json!([
            { "time_ns": 1, "kind": "joined", "process": 1, "name": name },
            { "time_ns": 2, "kind": "warning", "text": name },
            { "time_ns": 2, "kind": "knobs", "text": name },
        ]);
        let page = page(&Figures::read(&document.to_string()).unwrap());
        assert!(!page.contains("<b>") && !page.contains("script>") && !page.contains('\u{202e}'));
        let shown = "&lt;/script&gt;&lt;b&gt;\\u{202e}&quot;'&amp;";
        assert!(page.matches(shown).count() >= 8, "{page}");
    }

    #[test]
    fn the_page_needs_nothing_and_says_everything() {
        let page = page(&Figures::read(&example::document().to_string()).unwrap());
        for forbidden in ["http://", "https://", "src=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"));
        for part in ["Memory over time", "Another budget", "Pages", "Processes", "Settings"] {
            assert!(page.contains(part), "{part}");
        }
        let pictures = page.matches("role=\"img\"").count();
        assert!(pictures >= 8, "{pictures}");
        for part in ["<title id", "<desc id", "<details><summary>The numbers"] {
            assert_eq!(page.matches(part).count(), pictures, "{part}");
        }
    }

    #[test]
    fn what_a_list_has_no_room_for_is_counted() {
        let mut document = example::document();
        let warning = |time| json!({ "time_ns": time, "kind": "warning", "text": "hot" });
        document["timeline"]["events"] = (0..EVENTS_MAX + 3).map(warning).collect();
        document["timeline"]["events_dropped"] = json!(7);
        document["processes"] = json!(9);
        let page = page(&Figures::read(&document.to_string()).unwrap());
        assert_eq!(page.matches(": warning: hot").count(), EVENTS_MAX);
        assert!(page.contains("3 events more; --stats has them."));
        assert!(page.contains("no room for 7 events of processes or settings."));
    }

    /// Returns the relative luminance of a colour (WCAG 2).
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn colours_stand_out_from_the_ground_in_light_dark_and_print() {
        let blocks: Vec<_> = STYLE.split(":root").skip(1).collect();
        assert_eq!(blocks.len(), 3);
        for block in blocks {
            let block = block.split('}').next().unwrap();
            let colour = |name: &str| {
                let (_, rest) = block.split_once(&format!("--{name}: ")).expect(name);
                luminance(&rest[..7])
            };
            let contrast = |name: &str, ground: &str| {
                let (a, b) = (colour(name), colour(ground));
                (a.max(b) + 0.05) / (a.min(b) + 0.05)
            };
            let areas = ["place", "limbo", "pool", "disk", "shared", "unmanaged", "other", "first"];
            for name in areas {
                let found = contrast(name, "ground");
                assert!(found >= 3.0, "{name}: {found}");
            }
            for (name, ground) in [("ink", "ground"), ("soft", "ground"), ("soft", "card")] {
                let found = contrast(name, ground);
                assert!(found >= 4.5, "{name}: {found}");
            }
        }
    }
}
