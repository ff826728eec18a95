//! What shows a run to the user while it goes on.

use coldpress_common::failure::Result;

use super::exporter::Exporter;
use super::metrics::Subject;
use super::notice::Notice;
use super::standing::Standing;
use super::timeline::Timeline;
use crate::config::RunConfig;

/// The timeline of a run, its metrics, and what the service manager is told.
pub(super) struct Reports {
    pub(super) timeline: Timeline,
    /// The run, as metrics name it.
    pub(super) subject: Subject,
    /// The thread that exports metrics, if the user wants it.
    pub(super) exporter: Option<Exporter>,
    /// What tells systemd, if it asks for that.
    pub(super) notice: Option<Notice>,
}

impl Reports {
    /// Begins to report on a run.
    pub(super) fn begin(config: &RunConfig) -> Result<Self> {
        let subject = Subject::led_here(&config.program);
        let start = |target| {
            Exporter::start(target, subject.clone(), Standing::at_start(config.changeable()))
        };
        let exporter = config.metrics.as_ref().map(start).transpose()?;
        let notice = if config.is_trial { None } else { Notice::find(config.tells_ready) };
        Ok(Self { timeline: Timeline::begin(), subject, exporter, notice })
    }
}
