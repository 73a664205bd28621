/** What generated models name, and Debian does not have. */
package javax.annotation;

public @interface Nullable {}
