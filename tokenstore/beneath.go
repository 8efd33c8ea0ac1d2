package tokenstore

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Beneath returns the highest token among the marks whose resource begins with prefix; ok is false if there are none. It reads one
// snapshot of what is durable: every advance that was acknowledged before the call counts, none that is still being synced does.
// An error never means that there is no mark: the caller must reject. A record beneath that cannot be read is an error, since its
// token might be the highest.
//
// It reads every record beneath prefix, about a second for a million. Writers go on meanwhile.
func (s *Store) Beneath(prefix fencing.Resource) (highest fencing.Token, ok bool, err error) {
	err = guarded(func() error {
		return s.Range(string(prefix), func(m fencing.ResourceMark) error {
			if !ok || highest.Less(m.Mark.Token) {
				highest, ok = m.Mark.Token, true
			}
			return nil
		})
	})
	if err != nil {
		return fencing.Token{}, false, fmt.Errorf("look for marks beneath %q: %w", prefix, err)
	}
	return highest, ok, nil
}
