package tokenstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// inspect looks at a locked directory before Badger does, since Badger creates what it does not find and deletes what it does not
// know. It returns the identity of the store that is there, or nil if a new one may be created.
func inspect(dir string, mustExist bool) (*identity, error) {
	id, err := readIdentity(dir)
	if err != nil {
		return nil, err
	}
	db := filepath.Join(dir, dbName)
	switch {
	case id == nil:
		for _, name := range []string{dbName, seqName, cleanName} {
			if exists(filepath.Join(dir, name)) {
				return nil, damaged("%s has %s but no %s: %s", dir, name, identityName, recoverHint)
			}
		}
		if mustExist {
			return nil, fmt.Errorf("%w: %s is empty, and must_exist forbids to create a store there: check that the volume is mounted; "+
				"for a first start set must_exist to false", ErrMissing, dir)
		}
		return nil, nil
	case id.State == stateInit:
		if mustExist {
			return nil, fmt.Errorf("%w: the store in %s was never initialised to the end: start once with must_exist set to false", ErrMissing, dir)
		}
		return nil, discardUnborn(dir, id.ID)
	}
	if fi, err := os.Stat(filepath.Join(db, "MANIFEST")); err != nil || fi.Size() == 0 {
		return nil, damaged("%s has an %s but no usable %s: is the volume mounted? Otherwise %s", dir, identityName, filepath.Join(db, "MANIFEST"), recoverHint)
	}
	return id, nil
}

// discardUnborn removes what a crash during the creation of a store left behind. No mark was ever in it: a store takes marks only
// once its state is ready, and its SEQ file then is past firstSeq with the first one.
func discardUnborn(dir, id string) error {
	if seq, err := readSeq(dir, id); !errors.Is(err, os.ErrNotExist) && (err != nil || seq > firstSeq) {
		return damaged("%s says that the store was never initialised, but its %s says that it was used: %s", filepath.Join(dir, identityName), seqName, recoverHint)
	}
	for _, name := range []string{dbName, seqName, cleanName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// newIdentity marks the directory as one in which a store is being created.
func newIdentity(dir string) (*identity, error) {
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return nil, err
	}
	id := &identity{Format: identityFormat, Schema: schema, ID: hex.EncodeToString(raw[:]), State: stateInit}
	return id, id.write(dir)
}

// removeEmptyLogs deletes log files of length 0. They hold nothing: a crash between creating such a file and growing it leaves one,
// and Badger then refuses to open.
func removeEmptyLogs(db string) error {
	entries, err := os.ReadDir(db)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".mem") && !strings.HasSuffix(e.Name(), ".vlog") {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		if fi.Size() != 0 {
			continue
		}
		if err := os.Remove(filepath.Join(db, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// checkSeq compares what Badger found with what was acknowledged. It returns whether the last stop was unclean.
func checkSeq(dir string, id *identity, head seqRecord) (unclean bool, err error) {
	acked, err := readSeq(dir, id.ID)
	if errors.Is(err, os.ErrNotExist) {
		return false, damaged("%s is missing, so nothing proves that no acknowledged mark was lost: %s", filepath.Join(dir, seqName), recoverHint)
	}
	if err != nil {
		return false, err
	}
	clean, ok := readClean(dir)
	ok = ok && clean.ID == id.ID
	if ok {
		acked = max(acked, clean.Seq)
	}
	if head.seq < acked {
		return false, damaged("%s has lost acknowledged marks: it ends at batch %d, and batch %d was acknowledged. The files are an older copy, or were altered: %s",
			filepath.Join(dir, dbName), head.seq, acked, recoverHint)
	}
	return head.seq > firstSeq && !(ok && clean.Seq == head.seq), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
