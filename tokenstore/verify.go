package tokenstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
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
// back to an older value is found here, wherever it was. It returns errStopped if stop is closed meanwhile.
func (s *Store) verify(stop <-chan struct{}) error {
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
		got, n := seqRecord{seq: want.seq}, 0
		for _, kind := range []string{kindMark, kindMeta} {
			err := eachRecord(txn, kind, func(key string, raw []byte) error {
				got = got.with(key, raw)
				if n++; n%1024 == 0 && isClosed(stop) {
					return errStopped
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if got != want {
			return damaged("%s does not hold what batch %d left there: %d marks of %d, sum %016x instead of %016x. Files were altered or lost: %s",
				filepath.Join(s.dir, dbName), want.seq, got.marks, want.marks, got.sum, want.sum, recoverHint)
		}
		return nil
	})
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
			err = s.verify(s.stop)
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
