package jobs

import (
	"bytes"
	"compress/gzip"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestAcknowledged(t *testing.T) {
	var batch bytes.Buffer
	z := gzip.NewWriter(&batch)
	must.Get(z.Write([]byte(`{"entries": [{"kind": 0, "state": {"urn": "begun"}}, {"kind": 1, "state": {"urn": "kept"}}, {"kind": 1, "state": {"urn": "lost"}}, {"kind": 1}]}`)))(t)
	must.OK(t, z.Close())
	a := &acknowledged{}
	a.reset()
	a.see("/api/stacks/o/p/s/update/1/events", bytes.NewReader(batch.Bytes()))
	if a.count() != 0 {
		t.Error("another call acknowledges resources")
	}
	a.see("/api/stacks/o/p/s/update/1/journalentries", &batch)
	if a.count() != 2 || a.missing(map[string]bool{"kept": true, "begun": true}) != 1 {
		t.Errorf("of 2 acknowledged resources, of which 1 is lost: %d and %d", a.count(), a.missing(map[string]bool{"kept": true, "begun": true}))
	}
}
