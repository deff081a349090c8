//! Judgement over hand-made looks.
