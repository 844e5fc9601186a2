package stacks

import (
	"encoding/json"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

// maxDeploymentPrograms bounds the long programs of one deployment's updates, in bytes. The quota does
// not apply to a deployment's updates: the deployment was admitted when it was created, and a job that
// fails in the middle, for a quota that its author cannot see, leaves its resources half changed. A job
// with the largest possible program can still run eight updates with it.
const maxDeploymentPrograms = 8 * maxProgram

// admit returns an error if an organization's quota permits no further update with a program of the
// given size. It reports whether the update must do with a shortened program.
func (s *Service) admit(tx *store.Tx, st store.Stack, u store.Update, size int64) (short bool, err error) {
	switch {
	case u.DeploymentID != "" && size <= store.LongText:
		return false, nil
	case u.DeploymentID != "":
		stored, err := tx.LongPrograms(u.DeploymentID)
		return stored+size > maxDeploymentPrograms, err
	case Kind(u.Kind) == KindDestroy: // which frees space
		err := s.quota.AdmitText(tx, st.OrgID, size)
		if fault.KindOf(err) == fault.KindForbidden {
			return true, nil
		}
		return false, err
	}
	return false, s.quota.AdmitWork(tx, st.OrgID, size)
}

// ShortProgram returns the stored program of an update in at most [store.LongText] bytes, without its
// configuration.
func ShortProgram(text string) (string, error) {
	var p Program
	if json.Unmarshal([]byte(text), &p) != nil { // CreateUpdate encoded it, unless the row is damaged
		p = Program{}
	}
	return shorten(p, []byte(text))
}

// shortWord is the size up to which a shortened program contains a value of the environment, in bytes.
const shortWord = 80

// shorten returns a program, which is encoded as text, in at most [store.LongText] bytes. It omits the
// configuration, and if necessary most of the metadata.
func shorten(p Program, text []byte) (string, error) {
	if len(text) <= store.LongText {
		return string(text), nil
	}
	short := Program{Metadata: p.Metadata, Environment: p.Environment}
	for range 2 {
		text, err := json.Marshal(short)
		if err != nil {
			return "", fmt.Errorf("encoding an update: %w", err)
		}
		if len(text) <= store.LongText {
			return string(text), nil
		}
		short.Metadata = Metadata{Message: termtext.OneLine(p.Metadata.Message, shortWord), Environment: map[string]string{}}
		for _, name := range shownEnvironment {
			if v := p.Metadata.Environment[name]; v != "" && len(v) <= shortWord {
				short.Metadata.Environment[name] = v
			}
		}
		if p.Metadata.Environment[skipsCheckpoints] == "true" {
			short.Metadata.Environment[skipsCheckpoints] = "true"
		}
	}
	return "{}", nil // not reached: the texts that remain are shorter
}

// shownEnvironment are the variables of a client's environment with which the server describes it.
var shownEnvironment = []string{"ci.build.id", "ci.build.number", "ci.build.url", "ci.system", "pulumi.os", "pulumi.version"}
