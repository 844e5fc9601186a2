package policies

import (
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var acme = store.Organization{ID: "o1", Name: "acme"}

func newService(t *testing.T, db *store.DB) *Service {
	t.Helper()
	write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(acme) })
	return New(db, Options{Log: storetest.Log(), Key: []byte("key"), ExternalURL: "https://server.test"})
}

func parts(t *testing.T, address string) (id string, query url.Values) {
	t.Helper()
	u := must.Get(url.Parse(address))(t)
	return strings.TrimPrefix(u.Path, ArchivePath), u.Query()
}

func draft(t *testing.T, s *Service, tag string) Published {
	t.Helper()
	return must.Get(s.Publish(t.Context(), identity.Principal{}, acme, Draft{Name: "aws", Tag: tag}))(t)
}

// TestExpiry tests that addresses end after an hour, and incomplete versions and archives without a name after a day.
func TestExpiry(t *testing.T) {
	clock := new(storetest.Clock)
	db := storetest.SQLiteAt(t, clock)
	s := newService(t, db)
	id, query := parts(t, draft(t, s, "1").Upload)
	up := func() error { return s.Upload(t.Context(), id, query, strings.NewReader("archive"), -1) }
	clock.Pass(addressLife - time.Second)
	must.OK(t, up())
	clock.Pass(time.Second)
	if err := up(); fault.KindOf(err) != fault.KindForbidden || !strings.Contains(err.Error(), "repeat the command") {
		t.Errorf("an address after an hour: %v", err)
	}
	must.OK(t, s.Confirm(t.Context(), acme, "aws", "1"))
	complete, forJob := must.Get(s.Location(t.Context(), id))(t), must.Get(s.LocationForJob(t.Context(), id))(t)
	other, query := parts(t, draft(t, s, "2").Upload)
	must.OK(t, s.Upload(t.Context(), other, query, strings.NewReader("half"), -1))
	must.OK(t, s.Sweep(t.Context()))
	must.OK(t, must2(s.find(t.Context(), acme, "aws", "2", true)))
	clock.Pass(jobAddressLife - time.Second)
	if _, err := s.Download(t.Context(), id, mustQuery(t, forJob)); err != nil {
		t.Errorf("a download by a job that waited for a day: %v", err)
	}
	clock.Pass(unfinished - jobAddressLife + 2*time.Second)
	if _, err := s.Download(t.Context(), id, mustQuery(t, forJob)); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("a download by a job after a day: %v", err)
	}
	must.OK(t, s.Sweep(t.Context()))
	if _, _, err := s.find(t.Context(), acme, "aws", "2", true); fault.KindOf(err) != fault.KindNotFound {
		t.Errorf("an incomplete version after a day: %v", err)
	}
	must.OK(t, must2(s.find(t.Context(), acme, "aws", "1", false)))
	if _, err := s.Download(t.Context(), id, mustQuery(t, complete)); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("a download after an hour: %v", err)
	}
	// The age of blobs is that of the disk.
	keep := func(keys []string) ([]string, error) {
		return store.Read(t.Context(), db, func(tx *store.Tx) ([]string, error) { return tx.NamedPackBlobs(keys) })
	}
	if n, err := db.Blobs().Sweep(t.Context(), blobs, -time.Hour, keep); n != 1 || err != nil {
		t.Errorf("the sweep removes %d archives, %v, want 1", n, err)
	}
	_, query = parts(t, must.Get(s.Location(t.Context(), id))(t))
	var out strings.Builder
	must.OK(t, must.Get(s.Download(t.Context(), id, query))(t).Copy(t.Context(), &out))
	if out.String() != "archive" {
		t.Errorf("downloaded %q", out.String())
	}
}

func must2(_ store.PolicyPack, _ store.PolicyPackVersion, err error) error { return err }

func mustQuery(t *testing.T, address string) url.Values {
	t.Helper()
	_, query := parts(t, address)
	return query
}

// TestUploadsWait tests that an upload waits for another one of the same version, but not forever.
func TestUploadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := uploads{running: map[string]chan struct{}{}}
		end := must.Get(u.begin(t.Context(), "a"))(t)
		must.Get(u.begin(t.Context(), "b"))(t)()
		if _, err := u.begin(t.Context(), "a"); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("a second upload for a minute: %v", err)
		}
		time.AfterFunc(uploadWait/2, end)
		must.Get(u.begin(t.Context(), "a"))(t)()
	})
}

// TestCutOffUploads tests that an archive that ends early is not stored, whatever its length was said to be.
func TestCutOffUploads(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newService(t, db)
		id, query := parts(t, draft(t, s, "1").Upload)
		must.OK(t, s.Upload(t.Context(), id, query, iotest.OneByteReader(strings.NewReader("whole")), 5))
		for _, length := range []int64{-1, 2, 4} { // -1 for an upload in chunks
			half := io.MultiReader(strings.NewReader("ha"), iotest.ErrReader(io.ErrUnexpectedEOF)) // as net/http reports it
			if err := s.Upload(t.Context(), id, query, half, length); fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("half an archive of %d bytes: %v", length, err)
			}
		}
		if err := s.Upload(t.Context(), id, query, strings.NewReader("ha"), 4); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("an archive with another length than announced: %v", err)
		}
		if n := must.Get(db.Blobs().Total(t.Context(), blobs))(t); n != int64(len("whole")) {
			t.Errorf("%d bytes of archives remain, want those of the first upload", n)
		}
	})
}

// pausing is an archive during whose upload something else happens.
type pausing struct {
	strings.Reader
	then func()
}

func (p *pausing) Read(b []byte) (int, error) {
	if p.then != nil {
		p.then()
		p.then = nil
	}
	return p.Reader.Read(b)
}

// TestUploadsAtOnce tests that a version that is completed, published again or uploaded by another client during an
// upload does not get the archive.
func TestUploadsAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newService(t, db)
		during := func(id string, query url.Values, then func()) error {
			return s.Upload(t.Context(), id, query, &pausing{*strings.NewReader("late"), then}, -1)
		}
		id, query := parts(t, draft(t, s, "1").Upload)
		must.OK(t, s.Upload(t.Context(), id, query, strings.NewReader("first"), -1))
		err := during(id, query, func() {
			must.OK(t, s.Confirm(t.Context(), acme, "aws", "1"))
		})
		if fault.KindOf(err) != fault.KindConflict {
			t.Errorf("an upload during which the version is completed: %v", err)
		}
		again, query := parts(t, draft(t, s, "2").Upload)
		if err := during(again, query, func() { draft(t, s, "2") }); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("an upload during which the version is published again: %v", err)
		}
		if n := must.Get(db.Blobs().Total(t.Context(), blobs))(t); n != int64(len("first")) {
			t.Errorf("%d bytes of archives remain, want those of the first upload", n)
		}
		if err := s.Confirm(t.Context(), acme, "aws", "2"); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("completing without an archive: %v", err)
		}
	})
}
