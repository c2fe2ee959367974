package front

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// An object is a JSON object as it was written: its fields in their order, the same one twice if that is there, each value
// untouched.
type object []field

type field struct {
	name  string
	value json.RawMessage
}

func (o *object) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return errors.New("this is no JSON object")
	}
	*o = (*o)[:0]
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		text, _ := name.(string) // as the names of an object are
		*o = append(*o, field{text, value})
	}
	return nil
}

func (o object) MarshalJSON() ([]byte, error) {
	var written bytes.Buffer
	written.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			written.WriteByte(',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		written.Write(name)
		written.WriteByte(':')
		written.Write(f.value)
	}
	written.WriteByte('}')
	return written.Bytes(), nil
}

// read decodes the fields called so, however they are written, one after another: what stock takes is the last one's.
func (o object) read(name string, into any) error {
	for _, f := range o {
		if strings.EqualFold(f.name, name) {
			if err := json.Unmarshal(f.value, into); err != nil {
				return err
			}
		}
	}
	return nil
}

// edited gives the object with each field as edit returns it, without those that edit drops.
func (o object) edited(edit func(field) (field, bool)) object {
	kept := make(object, 0, len(o))
	for _, f := range o {
		if f, keep := edit(f); keep {
			kept = append(kept, f)
		}
	}
	return kept
}

// without gives the object less the fields called so.
func (o object) without(name string) object {
	return o.edited(func(f field) (field, bool) { return f, !strings.EqualFold(f.name, name) })
}
