package deployments

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

const (
	// keyLife is the time for which a client can repeat a request with the same key.
	keyLife = 48 * time.Hour
	maxKey  = 255
)

// Repeat identifies a request that its client can repeat.
type Repeat struct {
	Key  string // "" means that it is not repeated
	Body []byte // must be the same for the same key
}

// once creates a deployment, unless the caller has created one of the stack with the same key. It then
// returns that deployment.
func once(tx *store.Tx, p identity.Principal, st store.Stack, repeat Repeat, create func() (store.Deployment, error)) (store.Deployment, error) {
	key := repeat.Key
	if key == "" {
		return create()
	}
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return store.Deployment{}, fault.Invalid("the header Idempotency-Key must have 1 to %d printable ASCII characters without spaces", maxKey)
	}
	if err := p.Check(st, identity.Operate); err != nil {
		return store.Deployment{}, err
	}
	who := "token/" + p.TokenID
	if p.User.ID != "" && p.DeploymentID == "" {
		who = "user/" + p.User.ID // who may have got another token since
	}
	// The body can contain secrets that could be guessed from a hash without a key.
	k := store.DeploymentKey{StackID: st.ID, KeyHash: digest(who, []byte(key)), BodyHash: digest(who+"/"+key, repeat.Body), CreatedAt: tx.Now()}
	known, err := tx.DeploymentKey(k.StackID, k.KeyHash)
	switch {
	case err == nil && k.CreatedAt.Sub(known.CreatedAt) < keyLife:
		if known.BodyHash != k.BodyHash {
			return store.Deployment{}, fault.Conflict("a request with another body has used this Idempotency-Key; use a new key for each new deployment")
		}
		return tx.Deployment(known.DeploymentID)
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return store.Deployment{}, err
	}
	d, err := create()
	if err != nil {
		return d, err
	}
	k.DeploymentID = d.ID
	return d, tx.InsertDeploymentKey(k, k.CreatedAt.Add(-keyLife))
}

func digest(key string, data []byte) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}
