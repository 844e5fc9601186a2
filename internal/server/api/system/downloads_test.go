package system

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestWhichDownloadGivesWay fills all slots from one address, as if the clients were behind a
// proxy, and checks which downloads are replaced.
func TestWhichDownloadGivesWay(t *testing.T) {
	from := func(addr string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = addr
		return r
	}
	s := downloads{active: map[*download]bool{}}
	enter := func(addr string) *download { return s.enter(httptest.NewRecorder(), from(addr)) }
	var all []*download
	for range maxDownloads {
		all = append(all, enter("10.0.0.1:5"))
	}
	if enter("10.0.0.1:6") != nil {
		t.Error("one more download from the same address got a slot at once")
	}
	for i, d := range all {
		d.began = time.Now().Add(-20 * time.Second)
		d.sent.Store(20 * downloadRate * 2) // fast enough
		if i == 7 {
			d.sent.Store(20 * downloadRate / 2)
		}
		if i == 9 {
			d.sent.Store(20 * downloadRate / 3)
		}
	}
	if enter("10.0.0.1:6") == nil || !all[9].cut.Load() {
		t.Error("the slowest download was not replaced")
	}
	if _, err := all[9].Write([]byte("x")); err == nil {
		t.Error("the replaced download continues")
	}
	if enter("10.0.0.1:6") == nil || !all[7].cut.Load() {
		t.Error("the next slow download was not replaced")
	}
	if enter("10.0.0.1:6") != nil {
		t.Error("a download that is fast enough was replaced")
	}
	// Other addresses get slots until they have as many as the first address.
	for range maxDownloads / 2 {
		if enter("[2001:db8::1]:5") == nil && enter("[2001:db8::2]:5") == nil {
			break
		}
	}
	count := 0
	for d := range s.active {
		if strings.Contains(d.from, ":") {
			count++
		}
	}
	if len(s.active) != maxDownloads || count != maxDownloads/2 {
		t.Errorf("the second network has %d of %d slots", count, len(s.active))
	}
}
