/**
 * Every way a sign-in at an identity provider can fail: code → message for the person, and how to fix it. The
 * codes are API: they appear as `?error=`, in the log and in the audit log. A new one is a line here.
 */
export const failures = {
  sso_error: {
    message: 'The sign-in failed',
    hint: 'Try again. If it fails again, the log of the service tells why, under the time and the request id.',
  },
  session_expired: {
    message: 'This sign-in took longer than ten minutes, or was used before',
    hint: 'Begin again.',
  },
  invalid_callback: {
    message: 'This is not the browser in which the sign-in began, or the provider left something out',
    hint: 'Begin again, in one browser, with cookies allowed, at the address of the service that PUBLIC_URL says.',
  },
  provider_not_found: {
    message: 'Single sign-on of this organization was removed or switched off',
    hint: 'Ask an administrator whether the provider is active: svc sso list.',
  },
  organization_full: {
    message: 'The organization has as many members as it may have',
    hint: 'Remove members who left, or ask the operator of the service to raise QUOTA_MEMBERS.',
  },
  sso_config_changed: {
    message: 'The settings of the provider were changed while the sign-in was under way',
    hint: 'Begin again.',
  },
  sso_denied: {
    message: 'The identity provider did not let you in',
    hint: 'Ask whoever runs the identity provider to assign you to this application.',
  },
  sso_text_invalid: {
    message: 'The identity provider says something of you that is no text',
    hint: 'A NUL character, or half of a character, is in what it sends; the log of the service names the field. Correct it at the provider.',
  },
  sso_scope_refused: {
    message: 'The identity provider does not know a scope that is asked for',
    hint: 'Set the scopes to what the provider offers: svc sso update PROVIDER --scopes "openid profile email".',
  },
  sso_refused_by_provider: {
    message: 'The identity provider refused the sign-in',
    hint: 'Look at what it says, and into its log.',
  },
  sso_provider_unreachable: {
    message: 'The identity provider could not be reached from the service',
    hint: 'Nothing answers there: is the address right, port included, and may the service get out? svc sso test PROVIDER.',
  },
  sso_dns_failed: {
    message: 'The name of the identity provider has no address',
    hint: 'Is it spelled right? svc sso show PROVIDER prints the addresses, svc sso update PROVIDER --issuer … looks them up again.',
  },
  sso_tls_failed: {
    message: 'The certificate of the identity provider was not accepted',
    hint: 'Has it expired, and does it name this host? OUTBOUND_CA_FILE adds authorities of your own.',
  },
  sso_timeout: {
    message: 'The identity provider took too long',
    hint: 'Try again. If it stays, look at the way from the service to the provider: a firewall may drop what is sent.',
  },
  sso_address_blocked: {
    message: 'An address of the identity provider leads into the internal network',
    hint: 'Use the public address of the provider; OUTBOUND_ALLOW_CIDRS opens ranges of your own network.',
  },
  sso_client_rejected: {
    message: 'The identity provider does not accept the client id and secret',
    hint: 'Copy both again, without spaces around them; a secret may have expired: svc sso update PROVIDER --client-id … --client-secret -.',
  },
  sso_redirect_rejected: {
    message: 'The identity provider does not know the redirect address of this service',
    hint: 'Register it at the provider, to the letter; svc sso show PROVIDER prints it. It begins with PUBLIC_URL.',
  },
  sso_code_rejected: {
    message: 'The identity provider does not accept the code it gave',
    hint: 'Begin again. If it stays, the client id belongs to another application, or PKCE is switched off there.',
  },
  sso_token_failed: {
    message: 'The token endpoint of the identity provider did not answer as it should',
    hint: 'Check that the token address is that of this provider: svc sso test PROVIDER.',
  },
  sso_keys_unavailable: {
    message: 'The keys of the identity provider could not be read',
    hint: 'Check that the address of the keys is that of this provider: svc sso test PROVIDER.',
  },
  sso_key_unknown: {
    message: 'The ID token is signed with a key that the provider does not publish',
    hint: 'Check that the address of the keys is that of this issuer: svc sso update PROVIDER --issuer … looks it up again.',
  },
  sso_signature_invalid: {
    message: 'The signature of the ID token is not right',
    hint: 'Check that the address of the keys is that of this issuer; if it is, something on the way changes tokens.',
  },
  sso_algorithm_refused: {
    message: 'The ID token is not signed with a public key',
    hint: 'Set the application at the provider to RS256, PS256, ES256 or EdDSA; none and HS256 are not accepted.',
  },
  sso_token_malformed: {
    message: 'The ID token is not one',
    hint: 'Check that the token address is that of this provider: svc sso test PROVIDER.',
  },
  sso_issuer_mismatch: {
    message: 'The ID token is of another issuer',
    hint: 'Set the issuer to what the token says, to the letter: svc sso update PROVIDER --issuer ….',
  },
  sso_audience_mismatch: {
    message: 'The ID token is for another application',
    hint: 'Set the client id to that of this application: svc sso update PROVIDER --client-id ….',
  },
  sso_token_expired: {
    message: 'The ID token has expired',
    hint: 'Set the clocks right, of this service and of the provider: they are more than a minute apart.',
  },
  sso_clock_ahead: {
    message: 'The ID token is from the future',
    hint: 'Set the clocks right, of this service and of the provider: they are more than a minute apart.',
  },
  sso_nonce_mismatch: {
    message: 'The ID token is of another sign-in',
    hint: 'Begin again. If it stays, the provider does not pass on the nonce: it is no OpenID Connect provider.',
  },
  sso_access_token_mismatch: {
    message: 'The access token is not the one the ID token was given with',
    hint: 'Something on the way changes tokens: look at proxies between the service and the provider.',
  },
  sso_userinfo_failed: {
    message: 'The provider did not tell about the person',
    hint: 'Check the address that tells about people, and that the scopes hold profile and email.',
  },
  sso_subject_mismatch: {
    message: 'The provider tells about another person than the one who signed in',
    hint: 'Check that the address that tells about people is that of this provider.',
  },
  sso_no_subject: {
    message: 'The provider does not say who signed in',
    hint: 'The scopes have to hold openid, and the provider to give an ID token or tell about the person.',
  },
  sso_email_missing: {
    message: 'The provider does not say the e-mail address',
    hint: 'Let it send one: add the scope email, or map email to the claim that holds it.',
  },
  sso_email_unverified: {
    message: 'The provider says that the e-mail address is not verified',
    hint: 'Verify the address at the identity provider, then sign in again.',
  },
  domain_not_allowed: {
    message: 'E-mail addresses of this domain may not sign in here',
    hint: 'Use the address of your organization, or ask an administrator to allow the domain.',
  },
  user_not_found: {
    message: 'There is no account for you here',
    hint: 'Ask an administrator to invite you, or to switch on the making of accounts.',
  },
  default_role_required: {
    message: 'An account cannot be made: the provider has no role for new people',
    hint: 'Ask an administrator to set one: svc sso update PROVIDER --default-role ROLE.',
  },
  no_org_access: {
    message: 'Your account does not belong to this organization',
    hint: 'Ask an administrator of the organization to invite you.',
  },
  invitation_pending: {
    message: 'You have an account already, which has yet to accept the invitation of this organization',
    hint: 'Sign in with your e-mail address and password, and accept it under your invitations (svc login, svc invite list, svc invite accept NAME). Then sign in here again.',
  },
  beyond_provider: {
    message: 'Your permissions are more than this provider may vouch for',
    hint: 'Somebody who holds them has to activate it: svc sso activate PROVIDER. Until then sign in with your password.',
  },
  sso_link_required: {
    message: 'Your account is linked with another identity of this provider',
    hint: 'Ask an administrator to take the link away: svc sso identities PROVIDER, then svc sso unlink PROVIDER IDENTITY.',
  },
  account_inactive: {
    message: 'Your account is disabled',
    hint: 'Ask an administrator to enable it: svc users enable.',
  },
  tenant_inactive: {
    message: 'The organization is suspended',
    hint: 'Ask whoever runs the service.',
  },
  saml_malformed: {
    message: 'The reply of the identity provider is no SAML response',
    hint: 'Set the provider to the HTTP-POST binding, and its ACS address to the one in our metadata.',
  },
  saml_status: {
    message: 'The identity provider refused the sign-in',
    hint: 'Look at the status it gives, and into its log.',
  },
  saml_unsigned: {
    message: 'The assertion is not signed',
    hint: 'Set the provider to sign assertions.',
  },
  saml_signature_invalid: {
    message: 'The signature is not of the certificate that is known here',
    hint: 'The provider may have changed its certificate: svc sso update PROVIDER --certificate @FILE.',
  },
  saml_signature_ambiguous: {
    message: 'It is not clear what the signature of the response covers',
    hint: 'Look at who sent it: forged sign-ins look like this. A provider sends one assertion, and signs it or the response.',
  },
  saml_algorithm_refused: {
    message: 'The signature uses an algorithm that is too weak, or not meant for SAML',
    hint: 'Set the provider to sign with RSA-SHA256 or better.',
  },
  saml_certificate_expired: {
    message: 'The certificate of the identity provider has expired',
    hint: 'Renew it there and set the new one here: svc sso update PROVIDER --certificate @FILE.',
  },
  saml_encrypted: {
    message: 'The assertion is encrypted',
    hint: 'Switch the encryption of assertions off at the provider: the connection is encrypted already.',
  },
  saml_issuer_mismatch: {
    message: 'The assertion is of another issuer',
    hint: 'Set the entity id to what the assertion says: svc sso update PROVIDER --entity-id ….',
  },
  saml_audience_mismatch: {
    message: 'The assertion is for another service',
    hint: 'Set the audience at the provider to the entity id in our metadata.',
  },
  saml_recipient_mismatch: {
    message: 'The assertion is for another address',
    hint: 'Set recipient and destination at the provider to the ACS address in our metadata.',
  },
  saml_expired: {
    message: 'The assertion has expired',
    hint: 'Begin again. If it stays, set the clocks right, of this service and of the provider.',
  },
  saml_not_yet_valid: {
    message: 'The assertion is not valid yet',
    hint: 'Set the clocks right, of this service and of the provider: they are more than a minute apart.',
  },
  saml_request_mismatch: {
    message: 'The assertion answers another sign-in',
    hint: 'Begin at this service: sign-ins that begin at the provider are not accepted.',
  },
  saml_not_forced: {
    message: 'The identity provider did not ask to sign in again',
    hint: 'Set it to honor ForceAuthn, or do without: svc sso update PROVIDER --no-force-authn.',
  },
  saml_replayed: {
    message: 'The assertion was used before',
    hint: 'Begin again.',
  },
  saml_no_subject: {
    message: 'The assertion does not say who signed in',
    hint: 'Set the provider to send a NameID, best the e-mail address.',
  },
} as const satisfies Record<string, { message: string; hint: string }>

export type FailureCode = keyof typeof failures

/** Why a sign-in was refused. `detail`: what was received, for the log and for administrators; no secrets. */
export class SsoFailure extends Error {
  override name = 'SsoFailure'
  readonly code: FailureCode
  readonly detail: string | undefined

  constructor(code: FailureCode, detail?: string) {
    super(failures[code].message)
    this.code = code
    this.detail = detail
  }
}
