package tokenstore

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// Meta returns the value that [Store.SetMeta] stored under name; ok is false if there is none.
func (s *Store) Meta(name string) (value string, ok bool, err error) {
	err = s.view(func(txn *badger.Txn) error {
		raw, err := get(txn, kindMeta+name)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		value, err = decodeMeta(kindMeta+name, raw)
		ok = err == nil
		return err
	})
	if err != nil {
		return "", false, fmt.Errorf("load meta %q: %w", name, err)
	}
	return value, ok, nil
}

// SetMeta stores a small value of the caller's under name, in place of any other, and returns once it is durable. A name has 1 to
// 1,024 bytes, a value at most 768.
func (s *Store) SetMeta(name, value string) error {
	if err := checkMeta(name, value); err != nil {
		return err
	}
	key := kindMeta + name
	o := &op{entries: 1, bytes: len(key) + len(value) + 5 + entryOverhead}
	o.stage = func(b *batch) error {
		if b.noSpace != nil {
			return b.noSpace
		}
		e, err := b.entry(key)
		if err != nil {
			return err
		}
		e.after = encodeMeta(key, value)
		return nil
	}
	if err := s.submit(o); err != nil {
		return fmt.Errorf("set meta %q: %w", name, err)
	}
	return nil
}

// DeleteMeta removes what [Store.SetMeta] stored under name, and returns once that is durable. To remove nothing is no error.
func (s *Store) DeleteMeta(name string) error {
	if err := checkMeta(name, ""); err != nil {
		return err
	}
	key := kindMeta + name
	o := &op{entries: 1, bytes: len(key) + entryOverhead}
	o.stage = func(b *batch) error {
		e, err := b.entry(key)
		if err != nil {
			return err
		}
		e.after = nil
		return nil
	}
	if err := s.submit(o); err != nil {
		return fmt.Errorf("delete meta %q: %w", name, err)
	}
	return nil
}
