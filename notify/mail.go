package notify

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"mime/multipart"
	"net"
	netmail "net/mail"
	netsmtp "net/smtp"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/email/smtp"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// mail is the sender of smtp:// URLs, which have the form that they have in shoutrrr.
type mail struct {
	config   smtp.Config
	implicit bool // TLS from the first byte
}

func newMail(u *url.URL) (*mail, error) {
	m := &mail{config: smtp.Config{
		Port: smtp.DefaultSMTPPort, Auth: smtp.AuthTypes.Unknown, Encryption: smtp.EncMethods.Auto, UseStartTLS: true, ClientHost: "localhost",
		Timeout: smtp.DefaultTimeout * time.Second,
	}}
	c := &m.config
	if u.Scheme != smtp.Scheme {
		return nil, errors.New("smtp has no such URL: use smtp://…")
	}
	if err := c.SetURL(u); err != nil {
		return nil, err
	}
	c.FixEmailTags()
	if c.Auth == smtp.AuthTypes.Unknown {
		if c.Auth = smtp.AuthTypes.None; c.Username != "" {
			c.Auth = smtp.AuthTypes.Plain
		}
	}
	if c.ClientHost == "auto" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		c.ClientHost = host
	}
	m.implicit = c.Encryption == smtp.EncMethods.ImplicitTLS || c.Encryption == smtp.EncMethods.Auto && c.Port == smtp.ImplicitTLSPort
	return m, nil
}

// send sends an e-mail to each recipient, also after an error for one of them.
func (m *mail) send(ctx context.Context, message string, params *types.Params) error {
	ctx, cancel := context.WithTimeout(ctx, m.config.Timeout)
	defer cancel()
	c, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := m.open(c); err != nil {
		return err
	}
	var errs []error
	for i, to := range m.config.ToAddresses {
		if err := m.sendTo(c, to, cmp.Or((*params)[types.TitleKey], m.config.Subject), message); err != nil {
			errs = append(errs, fmt.Errorf("recipient %d: %w", i+1, err), c.Reset())
		}
	}
	_ = c.Quit() // the message was confirmed
	return errors.Join(errs...)
}

func (m *mail) tls() *tls.Config {
	return &tls.Config{ServerName: m.config.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: m.config.SkipTLSVerify} //nolint:gosec // the URL asks for it
}

func (m *mail) connect(ctx context.Context) (*netsmtp.Client, error) {
	dial := new(net.Dialer).DialContext
	if m.implicit {
		dial = (&tls.Dialer{Config: m.tls()}).DialContext
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(m.config.Host, strconv.Itoa(int(m.config.Port))))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop() // the caller closes the client
	c, err := netsmtp.NewClient(conn, m.config.Host)
	if err != nil {
		_ = conn.Close()
	}
	return c, err
}

// open greets the server, encrypts the connection and authenticates.
func (m *mail) open(c *netsmtp.Client) error {
	if err := c.Hello(m.config.ClientHost); err != nil {
		return err
	}
	if m.config.UseStartTLS && !m.implicit {
		switch supported, _ := c.Extension("STARTTLS"); {
		case supported:
			if err := c.StartTLS(m.tls()); err != nil {
				return err
			}
		case m.config.RequireStartTLS:
			return errors.New("the server does not support STARTTLS")
		}
	}
	var auth netsmtp.Auth
	switch m.config.Auth {
	case smtp.AuthTypes.None:
		return nil
	case smtp.AuthTypes.CRAMMD5:
		auth = netsmtp.CRAMMD5Auth(m.config.Username, m.config.Password)
	case smtp.AuthTypes.OAuth2:
		auth = smtp.OAuth2Auth(m.config.Username, m.config.Password)
	default:
		auth = netsmtp.PlainAuth("", m.config.Username, m.config.Password, m.config.Host)
	}
	return c.Auth(auth)
}

func (m *mail) sendTo(c *netsmtp.Client, to, subject, message string) error {
	if err := c.Mail(m.config.FromAddress); err != nil {
		return err
	}
	if err := c.Rcpt(to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	from := netmail.Address{Name: m.config.FromName, Address: m.config.FromAddress}
	_, err = fmt.Fprintf(w, "From: %s\nTo: %s\nSubject: %s\nDate: %s\nMIME-Version: 1.0\n",
		from.String(), to, mime.QEncoding.Encode("utf-8", subject), time.Now().Format(time.RFC1123Z))
	return errors.Join(err, m.body(w, message), w.Close())
}

const (
	plainText = `text/plain; charset="UTF-8"`
	htmlText  = `text/html; charset="UTF-8"`
)

func (m *mail) body(w io.Writer, message string) error {
	if !m.config.UseHTML {
		_, err := fmt.Fprintf(w, "Content-Type: %s\n\n%s", plainText, message)
		return err
	}
	parts := multipart.NewWriter(w)
	_, err := fmt.Fprintf(w, "Content-Type: multipart/alternative; boundary=%s\n\n", parts.Boundary())
	for _, part := range [][2]string{{plainText, message}, {htmlText, "<pre>" + html.EscapeString(message) + "</pre>"}} {
		if err != nil {
			return err
		}
		var p io.Writer
		if p, err = parts.CreatePart(textproto.MIMEHeader{"Content-Type": {part[0]}}); err == nil {
			_, err = io.WriteString(p, part[1])
		}
	}
	return errors.Join(err, parts.Close())
}
