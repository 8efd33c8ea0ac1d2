package tokenstore

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	// memTableSize never shrinks: Badger ends the process when a log of a larger one is replayed.
	memTableSize = 8 << 20
	// valueThreshold keeps every value out of the value log. See maxRecord.
	valueThreshold = 1 << 10
	// magic makes Badger refuse a database of another program. It changes with the schema.
	magic = 0xFE01
)

var _ = [1]struct{}{}[max(0, maxRecord-valueThreshold+1)] // maxRecord < valueThreshold

func badgerOptions(dir string, log *badgerLog) badger.Options {
	return badger.DefaultOptions(filepath.Join(dir, dbName)).
		WithSyncWrites(true).       // a commit returns once its log is on the disk
		WithDetectConflicts(false). // there is one writer
		WithNumVersionsToKeep(1).
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithNumLevelZeroTables(2).
		WithNumLevelZeroTablesStall(8).
		WithValueThreshold(valueThreshold).
		WithValueLogFileSize(1 << 20). // the least that is allowed; the file stays empty
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithIndexCacheSize(0).
		WithChecksumVerificationMode(options.OnTableRead). // the other modes serve damaged blocks as "not found"
		WithMetricsEnabled(false).
		WithExternalMagic(magic).
		WithLogger(log)
}

// badgerLog passes Badger's log lines on to slog. What Badger calls information is for its developers.
type badgerLog struct {
	log     *slog.Logger
	ignored atomic.Pointer[string] // set if Badger went on without one of its tables
}

func (l *badgerLog) line(level func(string, ...any), format string, args []any) {
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	if strings.HasPrefix(text, "Ignoring table") {
		l.ignored.Store(&text)
	}
	level("badger: " + text)
}

func (l *badgerLog) Errorf(format string, args ...any)   { l.line(l.log.Error, format, args) }
func (l *badgerLog) Warningf(format string, args ...any) { l.line(l.log.Warn, format, args) }
func (l *badgerLog) Infof(format string, args ...any)    { l.line(l.log.Debug, format, args) }
func (l *badgerLog) Debugf(format string, args ...any)   { l.line(l.log.Debug, format, args) }
