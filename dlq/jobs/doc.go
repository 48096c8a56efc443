// Package jobs runs bulk changes of dead letters: a job applies one action to each
// dead letter of a filter or of a list of ids.
//
// # Vocabulary
//
//   - Job: one bulk change, a row of dead_letter_jobs. Spec is the requested change, Actor
//     who created it, Progress how far it is and, once the job is finished, its report.
//   - Batch: the dead letters between two saves. A job saves a batch before it acts on
//     it, and counts it in the transaction that saves the next one.
//   - Runner: runs jobs in any process. It claims a job for a lease; after the lease
//     another runner continues at the saved batch.
//   - Canary: the first batches of a replay, of 1, 2, 5 and 20 dead letters. The job
//     waits for their results and pauses if one fails with the same error class.
//   - Follow: to wait until the relay has published the dead letters that a job
//     replayed, or has failed to.
//   - Preview: the result that a job would have, without changing anything.
//
// # States
//
//	queued → running → done
//	queued, running ⇄ paused     an operator, a canary, or an archive that fails
//	queued, running, paused → cancelled
//	running → failed             a permanent error
//
// Done, cancelled and failed are final. The report of a cancelled job is final once
// Finished is set.
//
// # Guarantees
//
// A job changes each dead letter at most once, also if its runner crashes or two
// runners act for it: each change contains the job's id. The package does not publish
// events and does not change dead letters itself: package dlq does.
//
// It relies on the clocks of the runners agreeing to well within a lease. If one is ahead, two runners
// act for one job, and each dead letter is still changed once. It relies on FirstFailedAt: a dead
// letter that a wrong clock dates later than the job is left out.
//
// It is a part of the program, and may change in any version.
package jobs
