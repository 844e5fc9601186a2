package opening

import (
	"encoding/json"
	"strconv"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/fault"
)

// Property returns the value at a path such as a.b[0]["c d"]. The value of an absent path is null.
func Property(v wire.Value, path string) (wire.Value, error) {
	keys, err := parsePath(path)
	if err != nil {
		return wire.Value{}, err
	}
	for _, key := range keys {
		switch content := v.Value.(type) {
		case map[string]wire.Value:
			v = content[key]
		case []wire.Value:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(content) {
				return wire.Value{}, nil //nolint:nilerr // an absent path
			}
			v = content[i]
		default:
			return wire.Value{}, nil
		}
	}
	return v, nil
}

// parsePath returns the keys and indexes of a path.
func parsePath(path string) (keys []string, err error) {
	invalid := fault.Invalid(`%q is not a path; write it as in values.list[0]["a key"]`, oneLine(path))
	for rest := path; rest != ""; {
		if rest[0] != '[' {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, invalid
			}
			keys, rest = append(keys, rest[:end]), rest[end:]
		} else {
			var key string
			if strings.HasPrefix(rest, `["`) {
				d := json.NewDecoder(strings.NewReader(rest[1:]))
				if d.Decode(&key) != nil {
					return nil, invalid
				}
				rest = rest[1+d.InputOffset():]
			} else {
				end := strings.IndexByte(rest, ']')
				if end < 0 {
					return nil, invalid
				}
				key, rest = rest[1:end], rest[end:]
				if _, err := strconv.ParseUint(key, 10, 31); err != nil {
					return nil, invalid
				}
			}
			if !strings.HasPrefix(rest, "]") {
				return nil, invalid
			}
			keys, rest = append(keys, key), rest[1:]
		}
		if strings.HasPrefix(rest, ".") {
			if rest = rest[1:]; rest == "" || rest[0] == '[' {
				return nil, invalid
			}
		}
	}
	return keys, nil
}
