package golden

import "strings"

// view is the state for decoding the responses of a case: each connection's
// compression, and the columns of prepared statements for rows without metadata.
// Recorded and actual responses have a view each.
type view struct {
	compression map[string]string   // by connection
	columns     map[string][]Column // by prepared id
	metadataIDs map[string]bool     // by connection: it asked for ids of metadata
}

func newView() *view {
	return &view{compression: map[string]string{}, columns: map[string][]Column{}, metadataIDs: map[string]bool{}}
}

// forgetConnection forgets the state of an earlier connection of that name.
func (v *view) forgetConnection(conn string) {
	delete(v.compression, conn)
	delete(v.metadataIDs, conn)
}

// answer decodes the response to a request on a connection. A response of no bytes is a
// closed connection.
func (v *view) answer(conn, kind string, request, response []byte) (*Answer, error) {
	if len(response) == 0 {
		return &Answer{Closed: true}, nil
	}
	if kind == "startup" {
		v.recordCompression(conn, request, response)
	}
	var columns []Column
	if kind == "execute" {
		if q, err := parseRequest(request, v.compression[conn], v.metadataIDs[conn]); err == nil {
			columns = v.columns[string(q.id)]
		}
	}
	a, err := decode(response, v.compression[conn], columns, v.metadataIDs[conn])
	if err != nil {
		return nil, err
	}
	if a.Kind == "Prepared" {
		v.columns[string(a.ID)] = a.Columns
	}
	return a, nil
}

// recordCompression records the compression that a STARTUP agreed on; its response is compressed
// already.
func (v *view) recordCompression(conn string, request, response []byte) {
	if len(request) < headerSize || parseHeader(response).Opcode == opError {
		return
	}
	r := &reader{b: request[headerSize:]}
	for range r.short() {
		if r.err != nil {
			return
		}
		switch k, val := r.string(), r.string(); k {
		case "COMPRESSION":
			v.compression[conn] = strings.ToLower(val)
		case "SCYLLA_USE_METADATA_ID":
			v.metadataIDs[conn] = true
		}
	}
}
