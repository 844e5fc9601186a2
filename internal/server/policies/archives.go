package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/words"
)

const (
	// blobs is the prefix of the keys of archives.
	blobs = "policy-packs"
	// piece is the number of bytes that are stored and read at once. A slow client must not occupy a connection of the
	// database.
	piece = 1 << 20
	// nameWithin is the age up to which an archive may be named: the sweep removes older ones without a name.
	nameWithin = 2 * time.Hour
	// uploadWait is the time for which an upload waits for the end of another one of the same version.
	uploadWait = time.Minute
	// unfinished is the age at which an incomplete version, and an archive that no version names, are removed.
	unfinished = 24 * time.Hour
)

// uploads are the versions whose archives this server receives, one at a time, so that a client cannot fill the disk with
// many at once.
type uploads struct {
	mu      sync.Mutex
	running map[string]chan struct{} // closed at the end
}

// begin waits until no other upload of a version runs: a client that repeats an upload whose connection was lost can be
// faster than the end of the first one.
func (u *uploads) begin(ctx context.Context, id string) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, uploadWait)
	defer cancel()
	for {
		u.mu.Lock()
		other, busy := u.running[id]
		if !busy {
			done := make(chan struct{})
			u.running[id] = done
			u.mu.Unlock()
			return func() {
				u.mu.Lock()
				defer u.mu.Unlock()
				delete(u.running, id)
				close(done)
			}, nil
		}
		u.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fault.Conflict("another client uploads the archive of this version; repeat the command when it has ended")
		}
	}
}

// Upload receives the archive of an incomplete version, if the query of the address permits it. length is the size that
// the client announces, or -1.
func (s *Service) Upload(ctx context.Context, versionID string, query url.Values, body io.Reader, length int64) error {
	now, err := s.db.Now(ctx)
	if err != nil {
		return err
	}
	if err := s.addresses.check(now, upload, versionID, query); err != nil {
		return err
	}
	if length > s.maxBytes {
		return s.tooLarge()
	}
	pack, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.PolicyPack, error) {
		pack, _, err := uploadable(tx, versionID)
		if err == nil {
			err = s.quota.Admit(tx, pack.OrgID)
		}
		return pack, err
	})
	if err != nil {
		return err
	}
	end, err := s.uploads.begin(ctx, versionID)
	if err != nil {
		return err
	}
	defer end()
	key := blobs + "/" + versionID + "/" + identity.NewID()
	size, sum, err := s.receive(ctx, key, body)
	if err == nil && length >= 0 && size != length {
		err = fault.Invalid("%d of %d bytes of the archive have arrived; publish the policy pack again", size, length)
	}
	if err != nil {
		s.drop(ctx, key)
		return err
	}
	var old string
	err = s.db.Write(ctx, scope.Organization(pack.OrgID), func(tx *store.Tx) error {
		if tx.Now().Sub(now) > nameWithin {
			return fault.New(fault.KindUnavailable, "the server stood still after it had received the archive; publish the policy pack again")
		}
		_, v, err := uploadable(tx, versionID)
		if err != nil {
			return err
		}
		if err := s.quota.AdmitImport(tx, pack.OrgID, size); err != nil {
			return err
		}
		old = v.Blob
		v.Blob, v.Size, v.SHA256 = key, size, sum
		return tx.SavePackVersion(v)
	})
	if err != nil {
		if fault.KindOf(err) != fault.KindOutcomeUnknown {
			s.drop(ctx, key)
		}
		return err
	}
	s.drop(ctx, old)
	return nil
}

// uploadable returns a version that waits for its archive.
func uploadable(tx *store.Tx, versionID string) (store.PolicyPack, store.PolicyPackVersion, error) {
	v, err := tx.PackVersion(versionID)
	if err != nil {
		return store.PolicyPack{}, v, store.IfMissing(err, fault.NotFound("this version of a policy pack was published again, or was not completed within a day; publish it again"))
	}
	if v.Status != store.PackIncomplete {
		return store.PolicyPack{}, v, fault.Conflict("this version of a policy pack is published, and published versions never change")
	}
	pack, err := tx.PolicyPack(v.PackID)
	return pack, v, err
}

func (s *Service) tooLarge() error {
	return fault.New(fault.KindTooLarge, "the archive of a policy pack can have at most %s; ask the operator of the server to raise policy_pack_size", words.Bytes(s.maxBytes))
}

// receive stores an archive, and returns its size and the digest of its content.
func (s *Service) receive(ctx context.Context, key string, body io.Reader) (size int64, sum string, err error) {
	if err := budget.Of(ctx).Take(ctx, piece); err != nil {
		return 0, "", err
	}
	hash, buf := sha256.New(), make([]byte, piece)
	for {
		n, err := 0, error(nil)
		for n < len(buf) && err == nil { // not io.ReadFull, whose error for a short last piece is that of a body that is cut off
			var more int
			more, err = body.Read(buf[n:])
			n += more
		}
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return 0, "", fault.Wrap(fault.KindInvalid, err, "the archive could not be read completely")
		}
		if size+int64(n) > s.maxBytes {
			return 0, "", s.tooLarge()
		}
		if n > 0 {
			hash.Write(buf[:n])
			if _, _, err := s.db.Blobs().Append(ctx, key, size, buf[:n]); err != nil {
				return 0, "", fmt.Errorf("storing the archive of a policy pack: %w", err)
			}
			size += int64(n)
		}
		if last {
			break
		}
	}
	if size == 0 {
		return 0, "", fault.Invalid("the archive is empty")
	}
	durable, err := s.db.Blobs().Sync(ctx, key, 0)
	if err == nil && durable != size {
		err = fmt.Errorf("%d of %d bytes are durable", durable, size)
	}
	return size, hex.EncodeToString(hash.Sum(nil)), fault.While(err, "storing the archive of a policy pack")
}

// Archive is the archive of a complete version.
type Archive struct {
	store.PolicyPackVersion
	service *Service
}

// Download returns the archive of a version, if the query of the address permits it.
func (s *Service) Download(ctx context.Context, versionID string, query url.Values) (Archive, error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return Archive{}, err
	}
	if err := s.addresses.check(now, download, versionID, query); err != nil {
		return Archive{}, err
	}
	if err := budget.Of(ctx).Take(ctx, piece); err != nil {
		return Archive{}, err
	}
	v, err := s.open(ctx, versionID)
	return Archive{v, s}, err
}

// Copy writes the archive to w. It writes the last piece only if the whole archive has the digest that was recorded when
// it was uploaded.
func (a Archive) Copy(ctx context.Context, w io.Writer) error {
	hash, buf := sha256.New(), make([]byte, min(piece, a.Size))
	for offset := int64(0); offset < a.Size; {
		n, err := a.service.db.Blobs().ReadAt(ctx, a.Blob, offset, buf[:min(int64(len(buf)), a.Size-offset)])
		if err != nil {
			return fmt.Errorf("reading the archive of a policy pack: %w", err)
		}
		if n == 0 {
			return errors.New("the archive of a policy pack ends early")
		}
		hash.Write(buf[:n])
		offset += int64(n)
		if offset >= a.Size && hex.EncodeToString(hash.Sum(nil)) != a.SHA256 {
			return errors.New("the archive of a policy pack differs from the uploaded one")
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// Sweep removes versions that were not completed within a day, and archives that no version names.
func (s *Service) Sweep(ctx context.Context) error {
	now, err := s.db.Now(ctx)
	if err != nil {
		return err
	}
	for {
		old, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.OwnedPackVersion, error) {
			return tx.UnfinishedPackVersions(now.Add(-unfinished))
		})
		if err != nil {
			return fmt.Errorf("searching unfinished policy packs: %w", err)
		}
		if len(old) == 0 {
			break
		}
		for _, v := range old {
			err := retry.Paced(ctx, func() error {
				return s.db.Write(ctx, scope.Organization(v.OrgID).Remaining(), func(tx *store.Tx) error { return tx.DeleteUnfinishedPackVersion(v.ID) })
			})
			if err != nil {
				return fmt.Errorf("removing an unfinished policy pack: %w", err)
			}
		}
	}
	_, err = s.db.Blobs().Sweep(ctx, blobs, unfinished, func(keys []string) ([]string, error) {
		return store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.NamedPackBlobs(keys) })
	})
	return err
}
