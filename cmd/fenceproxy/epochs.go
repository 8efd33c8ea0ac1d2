package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies"
)

// metaEpoch + policy name is the highest epoch with which the policy was ever served. There is none for epoch 0.
const metaEpoch = "epoch/"

// epochsNoted returns the highest epoch by policy name with which each was ever served.
func (s *sidecar) epochsNoted() (map[string]uint32, error) {
	names, err := s.store.MetaNames(metaEpoch)
	if err != nil {
		return nil, err
	}
	noted := make(map[string]uint32, len(names))
	for _, name := range names {
		text, _, err := s.store.Meta(name)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("token store: %s: %w", name, err)
		}
		noted[strings.TrimPrefix(name, metaEpoch)] = uint32(n)
	}
	return noted, nil
}

// renamed reports whether the policy old is gone and the new policy name gives the keys that it gave.
func (s *sidecar) renamed(set *policies.Set, old, name string) (bool, error) {
	prints := set.Fingerprints()
	was, _, err := s.store.Meta(metaPolicy + old)
	if err != nil {
		return false, err
	}
	_, known, err := s.store.Meta(metaPolicy + name)
	_, still := prints[old]
	return !known && !still && was == prints[name], err
}

// checkEpochs refuses a policy whose epoch is below the one noted for it, or for the one whose place it takes under a new name: its marks are in that
// epoch, so its tokens would all be stale, and on resources without a mark the old lock service's would be let in.
func (s *sidecar) checkEpochs(set *policies.Set) error {
	noted, err := s.epochsNoted()
	if err != nil || len(noted) == 0 {
		return err
	}
	epochs := set.Epochs()
	for _, name := range slices.Sorted(maps.Keys(epochs)) {
		for _, old := range slices.Sorted(maps.Keys(noted)) {
			if noted[old] <= epochs[name] {
				continue
			}
			as := ""
			if old != name {
				if renamed, err := s.renamed(set, old, name); err != nil {
					return err
				} else if !renamed {
					continue
				}
				as = ", under the name " + old
			}
			return withHint(fmt.Errorf("policy %s has epoch %d and was served with epoch %d before%s: its tokens would all be below the marks", name, epochs[name], noted[old], as),
				fmt.Sprintf("set epoch: %d, or a higher one if the lock service was rebuilt once more; an epoch never goes back", noted[old]))
		}
	}
	return nil
}

// noteEpochs notes the epochs of the policies that are about to be served, and says in the log which of them rose. checkEpochs comes first.
func (s *sidecar) noteEpochs(set *policies.Set) error {
	noted, err := s.epochsNoted()
	if err != nil {
		return err
	}
	epochs := set.Epochs()
	for _, name := range slices.Sorted(maps.Keys(epochs)) {
		now := epochs[name]
		if now <= noted[name] {
			continue
		}
		if err := s.store.SetMeta(metaEpoch+name, strconv.FormatUint(uint64(now), 10)); err != nil {
			return err
		}
		s.log.Warn("the epoch of a policy was raised: its tokens are above every mark of an earlier epoch", "policy", name, "was", noted[name], "now", now, "by", operator())
	}
	return nil
}
