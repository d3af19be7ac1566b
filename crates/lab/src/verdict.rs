//! What became of the findings of a paper.

use std::fmt::Write;

/// What the page of a quick run begins with.
pub(crate) fn quick_note(is_quick: bool) -> &'static str {
    if is_quick {
        "**This is a quick run: it shows that everything works; its figures mean nothing.**\n\n"
    } else {
        ""
    }
}

/// The verdict on a finding of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The same result here.
    Reproduced,
    /// The paper's problem does not occur here.
    Better,
    /// A different result here.
    NotReproduced,
    /// The system that the paper compared with is not available here.
    NotComparable,
    /// It cannot be measured here.
    NotMeasured,
}

impl Verdict {
    /// In a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Better => "better",
            Verdict::NotReproduced => "not reproduced",
            Verdict::NotComparable => "not comparable",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A finding of the paper and the result here.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// The experiment.
    pub id: &'static str,
    /// The paper's finding.
    pub paper: &'static str,
    /// The result here.
    pub here: String,
    /// The verdict and its reason.
    pub verdict: Judged,
}

/// A verdict and its reason.
pub type Judged = (Verdict, &'static str);

/// `so` if the result is as expected, else `otherwise`.
pub(crate) fn judge(as_expected: bool, so: Judged, otherwise: Judged) -> Judged {
    if as_expected { so } else { otherwise }
}

/// A section of a page: all findings with their verdicts.
pub fn table(claims: &[Claim]) -> String {
    let mut text = String::from(
        "## What the paper found, and what is found here\n\n| | the paper | here | verdict | why |\n|---|---|---|---|---|\n",
    );
    for claim in claims {
        let Claim { id, paper, here, verdict: (verdict, why) } = claim;
        let _ = writeln!(text, "| {id} | {paper} | {here} | **{}** | {why} |", verdict.words());
    }
    text
}
