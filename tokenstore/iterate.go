package tokenstore

import (
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Range calls fn for each mark whose resource begins with prefix, in the order of the resources' bytes, as they were at one moment
// during the call. It stops at the first error of fn and returns it. Writers go on meanwhile. fn may call the store, except Close.
func (s *Store) Range(prefix string, fn func(fencing.ResourceMark) error) error {
	return s.view(func(txn *badger.Txn) error {
		return eachRecord(txn, kindMark+prefix, func(key string, raw []byte) error {
			m, err := decodeMark(key, raw)
			if err != nil {
				return err
			}
			return fn(fencing.ResourceMark{Resource: fencing.Resource(key[len(kindMark):]), Mark: m})
		})
	})
}

// view runs fn in a read-only transaction while the store is usable.
func (s *Store) view(fn func(*badger.Txn) error) error {
	if err := s.Err(); err != nil {
		return err
	}
	if err := s.users.enter(); err != nil {
		return err
	}
	defer s.users.leave()
	s.commitMu.RLock() // a snapshot that is taken during a commit could show marks whose sync then fails
	txn := s.db.NewTransaction(false)
	s.commitMu.RUnlock()
	defer txn.Discard()
	if err := s.Err(); err != nil {
		return err
	}
	return fn(txn)
}

// eachRecord calls fn for each record whose key begins with prefix, in order. raw is valid during the call only.
func eachRecord(txn *badger.Txn, prefix string, fn func(key string, raw []byte) error) error {
	return eachRecordIn(txn, span{kind: prefix, from: prefix}, fn)
}

// eachRecordIn is eachRecord for the records of a span. Several may run in one transaction.
func eachRecordIn(txn *badger.Txn, sp span, fn func(key string, raw []byte) error) error {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(sp.kind)})
	defer it.Close()
	for it.Seek([]byte(sp.from)); it.Valid(); it.Next() {
		item := it.Item()
		key := string(item.Key())
		if sp.to != "" && key >= sp.to {
			return nil
		}
		if err := item.Value(func(raw []byte) error { return fn(key, raw) }); err != nil {
			return err
		}
	}
	return nil
}

// MetaNames returns the names that begin with prefix and have a value, sorted. See [Store.SetMeta].
func (s *Store) MetaNames(prefix string) (names []string, err error) {
	err = s.view(func(txn *badger.Txn) error {
		return eachRecord(txn, kindMeta+prefix, func(key string, _ []byte) error {
			names = append(names, strings.TrimPrefix(key, kindMeta))
			return nil
		})
	})
	return names, err
}
