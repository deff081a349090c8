# nox: the suite of each session runs under `lockscope run`, which is installed outside of the sessions.
# A session that deadlocks fails within seconds with the report in the output and in ./hangs; the others go on.
import nox


@nox.session
def tests(session):
    watched = ["lockscope", "run", "--timeout", "20m", "--report-dir", "hangs", "--"]
    session.run(*watched, "python", "-m", "unittest", *session.posargs, external=True)
