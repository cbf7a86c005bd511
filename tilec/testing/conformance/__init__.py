"""The conformance kit: does a backend compute what the language means?

    pytest --pyargs tilec.testing.conformance --tilec-target=c

Every operation on every dtype and many shapes is compiled for a target and compared with the
reference interpreter, with guard bytes around every argument. What the target's capability table
disclaims must be refused with a `CapabilityError`; what it does not disclaim must work. Nothing is
skipped. Options are listed by ``pytest --help`` under *tilec conformance*.

The pieces can be used without pytest: `cases.groups` makes the checks, `run.run_checks` runs them
on a `run.Subject`, `report.Report` counts.
"""
