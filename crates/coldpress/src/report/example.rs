//! Statistics for tests: a program that asks for 602 MiB within 150, and mostly waits.

use serde_json::Value;

/// Returns the statistics.
pub(super) fn document() -> Value {
    serde_json::from_str(include_str!("example.json")).expect("it is JSON")
}

#[cfg(test)]
mod tests {
    //! The risk: statistics of another version, or cut off, make a report all the same.

    use serde_json::json;

    use super::super::figures::Figures;
    use super::*;

    fn refused(change: impl Fn(&mut Value)) -> String {
        let mut document = document();
        change(&mut document);
        Figures::read(&document.to_string()).expect_err("it is wrong")
    }

    #[test]
    fn what_is_wrong_with_statistics_is_named() {
        for (text, words) in [("", "no JSON"), ("[]", "\"schema\""), ("{}", "\"schema\"")] {
            let error = Figures::read(text).expect_err("it is wrong");
            assert!(error.contains(words), "{error}");
        }
        assert!(refused(|it| it["schema"] = 2.into()).contains("schema is 2"));
        assert!(refused(|it| it["stall_ns"] = (-1).into()).contains("stall_ns: "));
        let error = refused(|it| it["histograms"]["fault_ns"][1]["count"] = "many".into());
        assert!(error.contains("histograms.fault_ns[1].count: "), "{error}");
        let error = refused(|it| {
            it.as_object_mut().expect("an object").remove("swap_in_pages");
        });
        assert!(error.contains("`swap_in_pages`"), "{error}");
        let error = refused(|it| it["timeline"]["points"]["used_bytes"] = json!([1]));
        assert!(error.contains("used_bytes has 1 entries, and time_ns has 3"), "{error}");
    }

    #[test]
    fn no_number_breaks_a_report() {
        for number in [0_u64, 1, u64::MAX] {
            let mut document = document();
            fn set(value: &mut Value, number: u64) {
                match value {
                    Value::Number(_) => *value = number.into(),
                    Value::Array(values) => values.iter_mut().for_each(|value| set(value, number)),
                    Value::Object(members) => members.values_mut().for_each(|it| set(it, number)),
                    _ => {}
                }
            }
            set(&mut document, number);
            (document["schema"], document["exit_status"]) = (1.into(), 0.into());
            let page = super::super::page_of(&document.to_string()).expect("it has all keys");
            let wrong = ["NaN", "inf"].iter().find_map(|word| page.find(word));
            assert_eq!(wrong.map(|at| &page[at - 60..at + 20]), None, "{number}");
        }
    }
}
