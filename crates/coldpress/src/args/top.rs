//! The options of `coldpress top`.

use std::time::Duration;

use clap::Args;

use super::help;

/// The shortest interval: a keeper of few processes that is asked ten times a second uses a percent
/// of a processor. With each process it uses more.
const INTERVAL_MIN: f64 = 0.1;
/// The longest interval: an hour.
const INTERVAL_MAX: f64 = 3600.0;

/// The options of `coldpress top`.
#[derive(Debug, Args)]
#[command(after_help = help::TOP_MORE, after_long_help = help::top_details())]
pub(crate) struct TopArgs {
    /// Show only the run of this process
    #[arg(value_name = "PID", conflicts_with = "all")]
    pub(crate) process: Option<u32>,

    /// List runs of other users too
    ///
    /// Their figures are not shown, unless the caller is root.
    #[arg(long)]
    pub(crate) all: bool,

    /// Print the table once, for scripts
    ///
    /// Rates are those of one interval, after which the table is printed.
    #[arg(long)]
    pub(crate) once: bool,

    /// Print one JSON document, for scripts
    #[arg(long)]
    pub(crate) json: bool,

    /// Time between two looks, 0.1 to 3600
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "1",
        value_parser = parse_interval
    )]
    pub(crate) interval: Duration,
}

/// Reads a number of seconds.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|it| (INTERVAL_MIN..=INTERVAL_MAX).contains(it));
    let wrong = || format!("\"{text}\" is not possible; write seconds, 0.1 to 3600");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_of_seconds_and_bounded() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "0.01", "-1", "nan", "inf", "3601", "1s", ""] {
            assert!(parse_interval(wrong).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }
}
