package tokenstore

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// Files beside db/.
const (
	identityName = "IDENTITY"
	seqName      = "SEQ"
	cleanName    = "CLEAN"
	dbName       = "db"
)

// identity is the content of the IDENTITY file. It is written with stateInit before Badger creates anything, and with stateReady
// once the new store is whole, so that a crash in between can be told from a loss.
type identity struct {
	Format string `json:"format"`
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	State  string `json:"state"`
}

const (
	identityFormat = "fenceproxy token store"
	schema         = 1
	stateInit      = "init"
	stateReady     = "ready"
)

// readIdentity returns nil without an error if there is no file.
func readIdentity(dir string) (*identity, error) {
	path := filepath.Join(dir, identityName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return nil, damaged("%s cannot be read (%v): %s", path, err, recoverHint)
	}
	raw, err := hex.DecodeString(id.ID)
	switch {
	case id.Format != identityFormat || err != nil || len(raw) != 16:
		return nil, damaged("%s is not the identity of a token store: %s", path, recoverHint)
	case id.Schema != schema:
		return nil, damaged("%s says schema %d and this program knows %d: run the release that wrote it", path, id.Schema, schema)
	case id.State != stateInit && id.State != stateReady:
		return nil, damaged("%s has the unknown state %q: %s", path, id.State, recoverHint)
	}
	return &id, nil
}

func (id identity) write(dir string) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return replaceFile(dir, identityName, append(b, '\n'))
}

// cleanMark is the content of the CLEAN file, which only a store that was closed cleanly has.
type cleanMark struct {
	ID  string `json:"id"`
	Seq uint64 `json:"seq"`
}

// readClean returns false if there is no readable CLEAN file: then the stop counts as unclean.
func readClean(dir string) (c cleanMark, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, cleanName))
	if err != nil || json.Unmarshal(b, &c) != nil {
		return cleanMark{}, false
	}
	return c, true
}

func (c cleanMark) write(dir string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return replaceFile(dir, cleanName, append(b, '\n'))
}

// removeClean removes the CLEAN file durably.
func removeClean(dir string) error {
	err := os.Remove(filepath.Join(dir, cleanName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// seqFile is the SEQ file: the number of the last batch that was acknowledged, written after the batch is durable and before
// it is acknowledged, without a sync of its own. So it never runs ahead of what Badger made durable, and a Badger that is
// behind it has lost acknowledged marks.
type seqFile struct {
	f  *os.File
	id string
}

const seqMagic = "FPSEQ001"

func (s *seqFile) encode(seq uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte(seqMagic), seq)
	return binary.BigEndian.AppendUint32(b, crc32.Update(crc32.Checksum([]byte(s.id), castagnoli), castagnoli, b))
}

// write overwrites the number in place: 20 bytes at the start of one sector.
func (s *seqFile) write(seq uint64) error {
	_, err := s.f.WriteAt(s.encode(seq), 0)
	return err
}

// readSeq returns the number in dir's SEQ file. A file that is missing is an os.ErrNotExist.
func readSeq(dir, id string) (uint64, error) {
	path := filepath.Join(dir, seqName)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if len(b) == len(seqMagic)+8+4 {
		seq := binary.BigEndian.Uint64(b[len(seqMagic):])
		if string((&seqFile{id: id}).encode(seq)) == string(b) {
			return seq, nil
		}
	}
	return 0, damaged("%s cannot be read, so nothing proves that no acknowledged mark was lost: %s", path, recoverHint)
}

func openSeq(dir, id string) (*seqFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, seqName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &seqFile{f: f, id: id}, nil
}

// replaceFile writes a file so that after a crash either the old or the new content is there.
func replaceFile(dir, name string, content []byte) error {
	tmp := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
