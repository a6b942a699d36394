"""Long forms of the tests in tests/faults, run by hand: `python -m tests.campaigns.kill --rounds 1000`.

Each ends with one line that says what was done and what was found, and with exit code 1 when something was broken.

| campaign | what happens |
| --- | --- |
| kill | writing processes are killed at random moments, alone and while others go on |
| shares | several processes write one file: nothing lost, nothing doubled, nobody starved |
| interrupt | the main thread is interrupted while it leads or waits, other threads work |
| forks | processes fork while their threads are in the middle of a run |
| cancel | asyncio tasks are cancelled at random |
| culprit | operations that fail among many that do not |
"""
