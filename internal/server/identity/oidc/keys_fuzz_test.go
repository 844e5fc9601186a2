package oidc

import "testing"

func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AAAA"},null,1]}`))
	f.Add([]byte(`{"keys":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeys(data, func(int, string) error { return nil })
		if err == nil && len(keys) > maxKeys {
			t.Errorf("%d keys", len(keys))
		}
		for _, k := range keys {
			if !k.Valid() || !k.IsPublic() {
				t.Errorf("the key %v was accepted", k.KeyID)
			}
		}
	})
}
