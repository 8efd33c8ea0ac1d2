package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// movedKey is a request that gets other resource keys than it had.
type movedKey struct{ request, was, now string }

// marksTried is how many marks of the built-in policy are looked at when the policies change.
const marksTried = 10000

var errEnough = errors.New("enough")

// movedKeys returns requests that the policies kept beside the marks fenced under one key and set fences under another. Requests that set
// refuses or lets by are none: the first lets no old token in, the second is what the operator wrote.
func (s *sidecar) movedKeys(set *policies.Set) ([]movedKey, error) {
	names, err := s.store.MetaNames(metaSample)
	if err != nil {
		return nil, err
	}
	var moved []movedKey
	builtin := false // its marks are in the store
	compare := func(q policies.Sample) {
		if now := set.Keys(q); len(now) > 0 && !slices.Equal(now, q.Keys) {
			moved = append(moved, movedKey{q.Method + " " + q.Target, strings.Join(q.Keys, ", "), strings.Join(now, ", ")})
		}
	}
	for _, name := range names {
		text, ok, err := s.store.Meta(name)
		if err != nil {
			return nil, err
		}
		var q policies.Sample
		if !ok || text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			return nil, fmt.Errorf("token store: %s: %w", name, err)
		}
		compare(q)
		builtin = builtin || name == metaSample+policies.UnmatchedName
	}
	if len(moved) > 0 || !builtin {
		return moved, nil
	}
	// A key of the built-in policy is the path: the marks themselves say which requests there were.
	n := 0
	err = s.store.Range("", func(m fencing.ResourceMark) error {
		if m.Mark.Policy == policies.UnmatchedName {
			compare(policies.PathSample(m.Resource))
			n++
		}
		if n == marksTried || len(moved) == 3 {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return moved, nil
}

// maxSample is the longest sample that is kept; the token store holds small values only.
const maxSample = 768

// noteSamples keeps a request of each policy, and those of policies that are gone: they may come back under other keys. moved says that
// changed keys were accepted: what they were is forgotten then.
func (s *sidecar) noteSamples(set *policies.Set, moved bool) error {
	names, err := s.store.MetaNames(metaSample)
	if err != nil {
		return err
	}
	notes := map[string]string{}
	if moved {
		notes[metaSample+policies.UnmatchedName] = ""
	}
	for _, name := range names {
		text, _, err := s.store.Meta(name)
		if err != nil {
			return err
		}
		var q policies.Sample
		if now := []string(nil); json.Unmarshal([]byte(text), &q) == nil {
			if now = set.Keys(q); len(now) > 0 && !slices.Equal(now, q.Keys) {
				notes[name] = "" // accepted: it is the old key's no longer
			}
		}
	}
	for name, q := range set.Samples() {
		text, err := json.Marshal(q)
		if err != nil {
			return err
		}
		if len(text) <= maxSample {
			notes[metaSample+name] = string(text)
		}
	}
	for name, text := range notes {
		if old, ok, err := s.store.Meta(name); err != nil {
			return err
		} else if ok && old == text || !ok && text == "" {
			continue
		}
		if err := s.store.SetMeta(name, text); err != nil {
			return err
		}
	}
	return nil
}
