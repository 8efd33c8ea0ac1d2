// Package chaos holds tests and nothing else: they run the real fenceproxy binary between writers whose leases get lost and a store that
// knows nothing of tokens, break every part in turn, and check afterwards what the store was made to apply.
//
// Start with TestChaos; README.md says what is broken, what is checked and how to replay a seed. TestChaosFindsMissingGuards takes one
// guard out of the product at a time and expects TestChaos to notice. The tests on disks (full, failing, cut off from power) need root and
// Linux tools, and are skipped by name where those are missing.
//
// What a pass does not show: that a store which goes on with a write for longer than in_doubt_hold is fenced (no proxy can), or that a
// device which lies about its flushes keeps the marks.
package chaos
