//! Which workloads were asked for, by name.

use crate::args::RuntimeName;
use crate::catalogue::{LONG, Variant, WORKLOADS, Workload};
use crate::problem::Problem;
use crate::results::LeftOut;

/// A workload with the variants of it that were asked for.
#[derive(Clone, Debug)]
pub struct Choice {
    pub workload: &'static Workload,
    pub variants: Vec<&'static Variant>,
}

/// The workloads that `names` choose, in the catalogue's order; all if there are no names.
///
/// # Errors
///
/// A [`Problem`] with the whole list for a name that is not there.
pub fn choose(names: &[String]) -> Result<Vec<Choice>, Problem> {
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let all: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        return Err(Problem::new(
            format!("there is no workload {unknown:?}"),
            format!("the workloads are {}", all.join(", ")),
            "one of these, or `upcall bench --list` for variants and bounds",
        ));
    }
    let wanted = |workload: &Workload, variant: &Variant| {
        names.is_empty()
            || names
                .iter()
                .any(|name| matches_name(name, workload, variant))
    };
    let choice = |workload: &'static Workload| {
        let all = workload.variants.iter();
        let variants: Vec<_> = all.filter(|variant| wanted(workload, variant)).collect();
        (!variants.is_empty()).then_some(Choice { workload, variants })
    };
    Ok(WORKLOADS.iter().filter_map(choice).collect())
}

/// Takes what takes minutes out of `choices`, and returns its names.
pub fn without_long(choices: &mut Vec<Choice>) -> Vec<String> {
    let mut names = Vec::new();
    for Choice { workload, variants } in &mut *choices {
        variants.retain(|variant| {
            let long = LONG
                .iter()
                .any(|name| matches_name(name, workload, variant));
            if long {
                names.push(full_name(workload, variant.name));
            }
            !long
        });
    }
    choices.retain(|choice| !choice.variants.is_empty());
    names
}

/// Takes out of `choices`, aloud, what there is a reason for, and notes it in `left_out`: a whole workload under its name if
/// all of it is left out for the same reason.
pub fn leave_out(
    choices: &mut Vec<Choice>,
    left_out: &mut Vec<LeftOut>,
    why: impl Fn(&'static Workload, &'static Variant) -> Option<String>,
) {
    let mut say = |workload: String, why: String| {
        eprintln!("upcall bench: {workload} is left out: {why}");
        left_out.push(LeftOut {
            workload,
            why,
            ..LeftOut::default()
        });
    };
    for Choice { workload, variants } in &mut *choices {
        let whys: Vec<_> = variants.iter().map(|one| why(workload, one)).collect();
        if let Some(Some(first)) = whys.first()
            && whys.iter().all(|one| one.as_ref() == Some(first))
        {
            say(workload.name.into(), first.clone());
            variants.clear();
            continue;
        }
        let mut whys = whys.into_iter();
        variants.retain(|variant| match whys.next().flatten() {
            Some(why) => {
                say(full_name(workload, variant.name), why);
                false
            }
            None => true,
        });
    }
    choices.retain(|choice| !choice.variants.is_empty());
}

pub fn full_name(workload: &Workload, variant: &str) -> String {
    let slash = if variant.is_empty() { "" } else { "/" };
    format!("{}{slash}{variant}", workload.name)
}

/// What of `choices` the runtime has no program for: workloads, and variants of others.
pub fn without(runtime: RuntimeName, choices: &[Choice]) -> Vec<String> {
    let mut names = Vec::new();
    for Choice { workload, variants } in choices {
        let lacks = |variant: &&&Variant| !variant.runs_on(runtime);
        let lacking: Vec<_> = variants.iter().filter(lacks).collect();
        if lacking.len() == variants.len() {
            names.push(workload.name.to_owned());
        } else {
            names.extend(
                lacking
                    .iter()
                    .map(|variant| full_name(workload, variant.name)),
            );
        }
    }
    names
}

fn matches_name(name: &str, workload: &Workload, variant: &Variant) -> bool {
    match name.split_once('/') {
        None => name == workload.name,
        Some((first, second)) => first == workload.name && second == variant.name,
    }
}

fn is_known(name: &str) -> bool {
    let variants = |workload: &'static Workload| {
        workload
            .variants
            .iter()
            .any(|variant| matches_name(name, workload, variant))
    };
    WORKLOADS.iter().any(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn no_names_choose_everything() {
        assert_eq!(choose(&[]).unwrap().len(), WORKLOADS.len());
    }

    #[test]
    fn a_variant_can_be_chosen_alone() {
        let chosen = choose(&names(&["yield", "block_to_compute/pipe"])).unwrap();
        assert_eq!(chosen.len(), 2);
        assert_eq!(chosen[0].workload.name, "block_to_compute");
        assert_eq!(chosen[0].variants.len(), 1);
        assert_eq!(chosen[0].variants[0].name, "pipe");
    }

    #[test]
    fn a_brief_run_lacks_what_takes_minutes_and_nothing_else() {
        let mut choices = choose(&[]).unwrap();
        let names = without_long(&mut choices);
        let both = ["fib_30/1", "fib_30/2", "sumtime_100000/1"];
        assert!(both.iter().all(|name| names.iter().any(|one| one == name)));
        assert!(LONG.iter().all(|name| is_known(name)));
        let left: usize = choices.iter().map(|choice| choice.variants.len()).sum();
        let all: usize = WORKLOADS
            .iter()
            .map(|workload| workload.variants.len())
            .sum();
        assert_eq!(left + names.len(), all);
        assert!(choices.iter().all(|choice| !choice.variants.is_empty()));
    }

    #[test]
    fn what_is_left_out_as_a_whole_has_one_reason() {
        let mut choices = choose(&names(&["block_to_compute", "yield", "fib_30"])).unwrap();
        let mut left_out = Vec::new();
        leave_out(
            &mut choices,
            &mut left_out,
            |workload, variant| match workload.name {
                "fib_30" => Some("a reason".into()),
                _ => (variant.name == "pipe").then(|| "a reason".into()),
            },
        );
        let named: Vec<_> = left_out.iter().map(|one| one.workload.as_str()).collect();
        assert_eq!(named, ["block_to_compute/pipe", "fib_30"]);
        let left: Vec<_> = choices.iter().map(|one| one.variants.len()).collect();
        assert_eq!(left, [2, 1]);
    }

    #[test]
    fn an_unknown_name_gets_the_list() {
        for bad in ["yeild", "block_to_compute/tape", "yield/x", ""] {
            let text = choose(&names(&[bad])).unwrap_err().to_string();
            assert!(text.contains("pair_openmp"), "{bad}: {text}");
        }
    }

    #[test]
    fn names_are_unique() {
        for (i, one) in WORKLOADS.iter().enumerate() {
            assert!(
                WORKLOADS[i + 1..]
                    .iter()
                    .all(|other| other.name != one.name)
            );
            for (j, variant) in one.variants.iter().enumerate() {
                assert!(
                    one.variants[j + 1..]
                        .iter()
                        .all(|other| other.name != variant.name)
                );
            }
        }
    }
}
