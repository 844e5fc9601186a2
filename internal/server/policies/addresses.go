package policies

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// AddressPurpose is the purpose of the key that signs addresses; see [keyring.Ring.Derive].
const AddressPurpose = "policy pack addresses"

// ArchivePath is the path below which archives are uploaded and downloaded.
const ArchivePath = "/api/blobs/policy-packs/"

// The times for which addresses are valid.
const (
	addressLife    = time.Hour
	jobAddressLife = 24 * time.Hour
)

// use is what an address permits.
type use string

const (
	upload   use = "upload"
	download use = "download"
)

// addresses makes and checks the addresses of archives. Clients send no token there, so an address is a credential for
// one use of one version. It is part of the query, which no log contains.
type addresses struct {
	key []byte
	url string // of the server, without a trailing slash
}

// make returns an address for a use of a version, which is valid for a time.
func (a addresses) make(ctx context.Context, db *store.DB, u use, versionID string, life time.Duration) (string, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return "", err
	}
	return a.at(now.Add(life), u, versionID), nil
}

func (a addresses) at(until time.Time, u use, versionID string) string {
	expires := strconv.FormatInt(until.Unix(), 10)
	query := url.Values{"expires": {expires}, "signature": {a.sign(u, versionID, expires)}}
	return a.url + ArchivePath + versionID + "?" + query.Encode()
}

func (a addresses) sign(u use, versionID, expires string) string {
	mac := hmac.New(sha256.New, a.key)
	fmt.Fprintf(mac, "%s\n%s\n%s", u, versionID, expires)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// check returns an error if an address does not permit a use of a version, or does not do so any more.
func (a addresses) check(now time.Time, u use, versionID string, query url.Values) error {
	expires := query.Get("expires")
	if !hmac.Equal([]byte(query.Get("signature")), []byte(a.sign(u, versionID, expires))) {
		return fault.New(fault.KindUnauthenticated, "the signature of this address is not valid; repeat the command to get another address")
	}
	until, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || now.Unix() >= until {
		return fault.Forbidden("this address was valid until %s; repeat the command to get another one", time.Unix(until, 0).UTC().Format(time.DateTime+" UTC"))
	}
	return nil
}
