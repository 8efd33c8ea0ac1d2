package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionNamesTheCommitThatWasBuilt(t *testing.T) {
	const commit = "8b648a5c0ffee8b648a5c0ffee8b648a5c0ffee0"
	for _, test := range []struct {
		name, module, revision, modified, want string
	}{
		{"a release of the module", "v1.2.3", "", "", "v1.2.3"},
		{"a commit", "(devel)", commit, "false", "devel-8b648a5c0ffe"},
		{"a commit with changes", "(devel)", commit, "true", "devel-8b648a5c0ffe-dirty"},
		{"without version control", "(devel)", "", "", "devel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			info := &debug.BuildInfo{Main: debug.Module{Version: test.module}}
			for key, value := range map[string]string{"vcs.revision": test.revision, "vcs.modified": test.modified} {
				if value != "" {
					info.Settings = append(info.Settings, debug.BuildSetting{Key: key, Value: value})
				}
			}
			if got := versionOf(info); got != test.want {
				t.Errorf("got %q; want %q", got, test.want)
			}
		})
	}
}
