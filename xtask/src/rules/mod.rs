//! The rules. Each reads the tree and reports; none depends on what another finds.

mod answers;
mod atomics;
mod comments;
mod commits;
mod documents;
mod layers;
mod modules;
mod order;
mod pure;
mod sentences;
mod size;
mod surface;
mod text;
mod types;
mod unsafety;
mod workflows;

use crate::pages;
use crate::report::Report;
use crate::tree::Tree;

/// A rule.
pub(crate) type Rule = fn(&Tree, &mut Report);

/// All rules.
pub(crate) const ALL: &[Rule] = &[
    answers::answers_say_whether,
    atomics::orderings_are_explained,
    comments::files_in_comments_exist,
    comments::members_in_comments_exist,
    commits::commits_say_what_and_why,
    documents::mentioned_files_exist,
    layers::dependencies_point_down,
    layers::paths_point_down,
    layers::mem_points_down,
    modules::every_file_is_reached,
    modules::every_file_says_its_purpose,
    modules::no_circle_of_modules,
    order::imports_follow_the_essay,
    pages::pages_are_fresh,
    pure::decisions_make_no_calls,
    sentences::nobody_is_headless,
    size::files_are_short,
    size::functions_are_short,
    surface::crates_show_few_types,
    text::lines_are_short_and_plain,
    text::nothing_is_left_over,
    text::words_are_plain,
    text::no_path_of_one_machine,
    types::types_have_few_fields,
    types::types_have_few_methods,
    unsafety::unsafe_stays_home,
    unsafety::unsafe_is_forbidden_elsewhere,
    unsafety::safety_texts_say_something,
    workflows::workflows_run_make,
    workflows::actions_are_pinned,
];

/// Returns the crate of a path and the path inside it: `("mem", "src/lib.rs")` for
/// `crates/mem/src/lib.rs`.
fn crate_path(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("crates/")?.split_once('/')
}
