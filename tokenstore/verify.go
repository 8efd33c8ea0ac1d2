package tokenstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

const verifyInterval = time.Hour

// digest is what one record adds to the sum in seqRecord.
func digest(key string, raw []byte) uint64 {
	b := make([]byte, 0, 512)
	b = append(append(append(b, key...), 0), raw...)
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// with and without return r after a record was added or removed. The sum does not depend on the order of the records, so the
// writer keeps it up to date without reading the others.
func (r seqRecord) with(key string, raw []byte) seqRecord {
	r.sum += digest(key, raw)
	if strings.HasPrefix(key, kindMark) {
		r.marks++
	}
	return r
}

func (r seqRecord) without(key string, raw []byte) seqRecord {
	r.sum -= digest(key, raw)
	if strings.HasPrefix(key, kindMark) {
		r.marks--
	}
	return r
}

var errStopped = errors.New("stopped")

// verify reads every record of one snapshot and compares them with the sum in the same snapshot. Badger itself drops a table that
// its manifest does not name, and the end of a log after a damaged entry, without an error; a record that vanished or fell
// back to an older value is found here, wherever it was. It keeps so many cores busy, and returns errStopped if stop is closed meanwhile.
func (s *Store) verify(cores int, stop <-chan struct{}) error {
	s.commitMu.RLock()
	txn := s.db.NewTransaction(false)
	s.commitMu.RUnlock()
	defer txn.Discard()
	return guarded(func() error {
		raw, err := get(txn, keySeq)
		if err != nil {
			return err
		}
		want, err := decodeSeq(raw)
		if err != nil {
			return err
		}
		got, err := sumUp(txn, spansOf(s.db.Tables(), spansPerCore*cores), cores, stop)
		if err != nil {
			return err
		}
		if got.seq = want.seq; got != want {
			return damaged("%s does not hold what batch %d left there: %d marks of %d, sum %016x instead of %016x. Files were altered or lost: %s",
				filepath.Join(s.dir, dbName), want.seq, got.marks, want.marks, got.sum, want.sum, recoverHint)
		}
		return nil
	})
}

// span is the records of one kind from a key up to another, or to the last one if to is empty.
type span struct{ kind, from, to string }

// spansPerCore evens out that spans differ in length.
const spansPerCore = 4

// spansOf divides all records that the sum is about into spans, the marks into at most n. The first keys of tables are the borders: which
// ones they are changes how long a check takes, not what it finds, since the spans leave no gap.
func spansOf(tables []badger.TableInfo, n int) []span {
	var firsts []string
	for _, t := range tables {
		if key := string(y.ParseKey(t.Left)); strings.HasPrefix(key, kindMark) {
			firsts = append(firsts, key)
		}
	}
	slices.Sort(firsts)
	firsts = slices.Compact(firsts)
	spans := []span{{kind: kindMeta, from: kindMeta}}
	from := kindMark
	for i := 1; i < n; i++ {
		at := i * len(firsts) / n
		if at >= len(firsts) || firsts[at] <= from {
			continue
		}
		spans = append(spans, span{kindMark, from, firsts[at]})
		from = firsts[at]
	}
	return append(spans, span{kind: kindMark, from: from})
}

// sumUp adds up the records of all spans. The sum does not depend on their order.
func sumUp(txn *badger.Txn, spans []span, cores int, stop <-chan struct{}) (seqRecord, error) {
	todo := make(chan span, len(spans))
	for _, sp := range spans {
		todo <- sp
	}
	close(todo)
	sums, errs := make([]seqRecord, cores), make([]error, cores)
	var wg sync.WaitGroup
	for c := range cores {
		wg.Go(func() {
			errs[c] = guarded(func() (err error) { // a panic of Badger must not pass the end of a goroutine
				sums[c], err = sumSpans(txn, todo, stop)
				return err
			})
		})
	}
	wg.Wait()
	var total seqRecord
	for _, sum := range sums {
		total.marks += sum.marks
		total.sum += sum.sum
	}
	return total, errors.Join(errs...)
}

// sumSpans adds up spans until there is none left to do.
func sumSpans(txn *badger.Txn, todo <-chan span, stop <-chan struct{}) (sum seqRecord, err error) {
	n := 0
	for sp := range todo {
		err := eachRecordIn(txn, sp, func(key string, raw []byte) error {
			sum = sum.with(key, raw)
			if n++; n%1024 == 0 && isClosed(stop) {
				return errStopped
			}
			return nil
		})
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// verifyEvery checks the running store now and then: the checksums of Badger's tables, and the sum of the records. A mismatch is the
// end of the store.
func (s *Store) verifyEvery(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		err := guarded(s.db.VerifyChecksum)
		if err == nil {
			err = s.verify(1, s.stop) // leaves the other cores to the writes
		}
		if err != nil && !errors.Is(err, errStopped) {
			_ = s.fail(fmt.Errorf("verify: %w", err)) // Err says it from now on
		}
		if s.Err() != nil {
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
